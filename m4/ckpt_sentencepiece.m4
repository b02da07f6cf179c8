dnl SPDX-License-Identifier: Apache-2.0
# CKPT_SENTENCEPIECE
# libsentencepiece, which is C++: a compiler for one file, the library, and the run time of C++,
# since programs are linked as C.  Sets SENTENCEPIECE_CFLAGS and SENTENCEPIECE_LIBS,
# found_sentencepiece and the automake condition HAVE_SENTENCEPIECE.
AC_DEFUN([CKPT_SENTENCEPIECE], [
  CKPT_WITH([sentencepiece], [read prompts with the tokenizer of T5])
  have_sentencepiece=no
  found_sentencepiece=no
  AS_IF([test "$with_sentencepiece" != no],
    [PKG_CHECK_MODULES([SENTENCEPIECE], [sentencepiece],
      [# Its header needs C++17, which is not the default of every compiler in use.
       SENTENCEPIECE_CFLAGS="-std=c++17 $SENTENCEPIECE_CFLAGS"
       # That library of the two which encodes; the other one trains.
       SENTENCEPIECE_LIBS=`$PKG_CONFIG --libs-only-L sentencepiece`
       SENTENCEPIECE_LIBS="$SENTENCEPIECE_LIBS -lsentencepiece -lstdc++"
       AC_MSG_CHECKING([whether a program with sentencepiece compiles])
       AC_LANG_PUSH([C++])
       ckpt_save_CXXFLAGS=$CXXFLAGS
       ckpt_save_LIBS=$LIBS
       CXXFLAGS="$CXXFLAGS $SENTENCEPIECE_CFLAGS"
       LIBS="$SENTENCEPIECE_LIBS $LIBS"
       AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <sentencepiece_processor.h>]],
         [[sentencepiece::SentencePieceProcessor p; return p.GetPieceSize();]])],
         [have_sentencepiece=yes], [have_sentencepiece=no])
       CXXFLAGS=$ckpt_save_CXXFLAGS
       LIBS=$ckpt_save_LIBS
       AC_LANG_POP([C++])
       AC_MSG_RESULT([$have_sentencepiece])
       found_sentencepiece=$have_sentencepiece
       AS_IF([test $have_sentencepiece = no],
         [found_sentencepiece="no (does not compile with $CXX)"
          AS_IF([$CXX --version >/dev/null 2>&1], [],
            [found_sentencepiece="no (there is no C++ compiler, such as g++)"])])],
      [CKPT_WHY_NOT([SENTENCEPIECE])
       found_sentencepiece="no ($ckpt_why)"])
     AS_IF([test "$with_sentencepiece$have_sentencepiece" = yesno],
       [AC_MSG_ERROR([--with-sentencepiece was asked for: $found_sentencepiece])])])
  AS_IF([test $have_sentencepiece = no], [SENTENCEPIECE_CFLAGS= SENTENCEPIECE_LIBS=])
  AM_CONDITIONAL([HAVE_SENTENCEPIECE], [test $have_sentencepiece = yes])
])
