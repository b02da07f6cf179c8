dnl SPDX-License-Identifier: Apache-2.0
# CKPT_NIFTI
# libniftiio with libznz, which have no files of pkg-config; Debian keeps the headers in nifti/.
# Sets NIFTI_CFLAGS and NIFTI_LIBS, found_nifti and the automake condition HAVE_NIFTI.
AC_DEFUN([CKPT_NIFTI], [
  CKPT_WITH([nifti], [medical volumes in NIfTI files])
  have_nifti=no
  found_nifti=no
  AS_IF([test "$with_nifti" != no],
    [AC_MSG_CHECKING([for libniftiio])
     ckpt_save_CPPFLAGS=$CPPFLAGS
     ckpt_save_LIBS=$LIBS
     NIFTI_LIBS="-lniftiio -lznz -lz"
     LIBS="$NIFTI_LIBS $LIBS"
     for NIFTI_CFLAGS in "-I/usr/include/nifti" ""; do
       CPPFLAGS="$ckpt_save_CPPFLAGS $NIFTI_CFLAGS"
       AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <nifti1_io.h>]],
         [[return is_nifti_file("a.nii") + !znzopen("a", "rb", 1);]])], [have_nifti=yes])
       AS_IF([test $have_nifti = yes], [break])
     done
     CPPFLAGS=$ckpt_save_CPPFLAGS
     LIBS=$ckpt_save_LIBS
     AC_MSG_RESULT([$have_nifti])
     AS_IF([test $have_nifti = yes], [found_nifti=yes], [found_nifti="no (not found)"])
     AS_IF([test "$with_nifti$have_nifti" = yesno],
       [AC_MSG_ERROR([--with-nifti was asked for: apt install libniftiio-dev libnifti2-dev])])])
  AS_IF([test $have_nifti = no], [NIFTI_CFLAGS= NIFTI_LIBS=],
    [AC_DEFINE([HAVE_NIFTI], [1], [Volumes can be read from NIfTI files.])])
  AC_SUBST([NIFTI_CFLAGS])
  AC_SUBST([NIFTI_LIBS])
  AM_CONDITIONAL([HAVE_NIFTI], [test $have_nifti = yes])
])
