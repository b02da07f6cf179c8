dnl SPDX-License-Identifier: Apache-2.0
# CKPT_OPENBLAS
# OpenBLAS, by pkg-config or by name, with or without the files that programs are linked with.
# Required, but not linked: the library loads it by the name that the linker would have noted.
# Defines OPENBLAS_FILE.
AC_DEFUN([CKPT_OPENBLAS], [
  PKG_CHECK_MODULES([OPENBLAS], [openblas],
    [found_openblas="yes, `$PKG_CONFIG --modversion openblas`"],
    [AC_CHECK_LIB([openblas], [cblas_sgemm],
      [OPENBLAS_LIBS=-lopenblas
       found_openblas=yes],
      [AC_CHECK_LIB([:libopenblas.so.0], [cblas_sgemm],
        [OPENBLAS_LIBS=-l:libopenblas.so.0
         found_openblas=yes],
        [AC_MSG_ERROR([OpenBLAS is missing; on Debian or Ubuntu: apt install libopenblas0])])])])

  ckpt_save_LIBS=$LIBS
  LIBS="$OPENBLAS_LIBS $LIBS"
  AC_CHECK_FUNCS([openblas_set_num_threads blas_memory_alloc blas_memory_free], [],
    [AC_MSG_ERROR([the BLAS found is not OpenBLAS: $ac_func is missing])])
  AC_CHECK_TOOL([OBJDUMP], [objdump], [:])
  ckpt_openblas=
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[void cblas_sscal(int, float, float *, int);]],
      [[cblas_sscal(1, 1.f, 0, 1);]])],
    [ckpt_openblas=`$OBJDUMP -p conftest$EXEEXT |
       sed -n 's/.*NEEDED *\([[^ ]]*openblas[[^ ]]*\).*/\1/p'`])
  AC_DEFINE_UNQUOTED([OPENBLAS_FILE], ["${ckpt_openblas:-libopenblas.so.0}"],
    [The file that OpenBLAS is loaded from.])
  LIBS=$ckpt_save_LIBS
])
