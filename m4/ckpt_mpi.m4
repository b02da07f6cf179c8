dnl SPDX-License-Identifier: Apache-2.0
# CKPT_MPI
# --with-mpi.  What a plugin that speaks to MPI is built with, from pkg-config or from what the
# compiler wrapper shows.  Sets MPI_CFLAGS, MPI_LIBS, have_mpi, found_mpi and the automake condition
# HAVE_MPI.  A plugin is a shared object: without those there is no MPI.
AC_DEFUN([CKPT_MPI], [
  CKPT_WITH([mpi], [ranks as processes that mpirun or srun starts])
  AC_ARG_VAR([MPICC], [the MPI compiler wrapper])
  have_mpi=no
  found_mpi=no
  AS_IF([test "$with_mpi" != no && test "$enable_shared" = no],
    [found_mpi="no (needs shared libraries)"
     AS_IF([test "$with_mpi" = yes], [AC_MSG_ERROR([--with-mpi needs --enable-shared])])
     with_mpi=no])
  AS_IF([test "$with_mpi" != no], [
    AS_IF([test -n "$MPICC"], [_CKPT_MPI_WRAPPER],
      [for ckpt_module in mpi-c ompi-c mpich; do
         AS_IF([test "$have_mpi" = no],
           [PKG_CHECK_MODULES([MPI], [$ckpt_module], [have_mpi=yes], [:])])
       done
       AS_IF([test "$have_mpi" = no],
         [AC_CHECK_PROGS([MPICC], [mpicc])
          AS_IF([test -n "$MPICC"], [_CKPT_MPI_WRAPPER])])])
    AS_IF([test "$have_mpi" = yes], [_CKPT_MPI_TRY])
    AS_IF([test "$have_mpi" = no],
      [found_mpi="no (not found)"
       AS_IF([test "$with_mpi" = yes],
         [AC_MSG_ERROR([--with-mpi was asked for, but no MPI library links: libopenmpi-dev?])])])
  ])
  AC_CHECK_PROGS([MPIRUN], [mpirun mpiexec])
  AM_CONDITIONAL([HAVE_MPI], [test "$have_mpi" = yes])
])

# Takes the flags out of the command that the wrapper would run.
AC_DEFUN([_CKPT_MPI_WRAPPER], [
  for ckpt_word in `$MPICC -show 2>/dev/null`; do
    AS_CASE([$ckpt_word],
      [-I*|-D*], [MPI_CFLAGS="$MPI_CFLAGS $ckpt_word"],
      [-L*|-l*|-Wl*], [MPI_LIBS="$MPI_LIBS $ckpt_word"
                       have_mpi=yes])
  done
])

AC_DEFUN([_CKPT_MPI_TRY], [
  AC_MSG_CHECKING([whether MPI programs link])
  ckpt_save_CPPFLAGS=$CPPFLAGS
  ckpt_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
  LIBS="$MPI_LIBS $LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[
    int level;
    return MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);]])],
    [found_mpi=yes], [have_mpi=no])
  CPPFLAGS=$ckpt_save_CPPFLAGS
  LIBS=$ckpt_save_LIBS
  AC_MSG_RESULT([$have_mpi])
])
