# CKPT_OPENBLAS
# OpenBLAS with cblas.h, by pkg-config or by name.  Required.  Sets OPENBLAS_CFLAGS, OPENBLAS_LIBS
# and OPENBLAS_REQUIRES (the pkg-config module, for libckpt.pc; empty where there is none).
AC_DEFUN([CKPT_OPENBLAS], [
  OPENBLAS_REQUIRES=
  PKG_CHECK_MODULES([OPENBLAS], [openblas],
    [OPENBLAS_REQUIRES=openblas
     found_openblas="yes, `$PKG_CONFIG --modversion openblas`"],
    [AC_CHECK_LIB([openblas], [cblas_sgemm],
      [OPENBLAS_LIBS=-lopenblas
       found_openblas=yes],
      [AC_MSG_ERROR([OpenBLAS is missing; on Debian or Ubuntu: apt install libopenblas-dev])])])
  AC_SUBST([OPENBLAS_REQUIRES])

  ckpt_save_CPPFLAGS=$CPPFLAGS
  ckpt_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $OPENBLAS_CFLAGS"
  LIBS="$OPENBLAS_LIBS $LIBS"
  AC_CHECK_HEADER([cblas.h], [],
    [AC_MSG_ERROR([OpenBLAS was found, its header cblas.h was not])])
  AC_CHECK_FUNC([openblas_set_num_threads], [],
    [AC_MSG_ERROR([the BLAS found is not OpenBLAS: openblas_set_num_threads is missing])])
  CPPFLAGS=$ckpt_save_CPPFLAGS
  LIBS=$ckpt_save_LIBS
])
