dnl SPDX-License-Identifier: Apache-2.0
# CKPT_SANITIZERS
# --enable-sanitizers=LIST, any of address, undefined, leak, thread, with commas between them.
# Sets SANITIZER_FLAGS.
AC_DEFUN([CKPT_SANITIZERS], [
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST],
      [instrument everything: address, undefined, leak, thread; commas between them @<:@no@:>@])],
    [], [enable_sanitizers=no])
  AS_IF([test "x$enable_sanitizers" = xyes], [enable_sanitizers=address,undefined])
  SANITIZER_FLAGS=
  AS_IF([test "x$enable_sanitizers" != xno], [
    for ckpt_one in `echo "$enable_sanitizers" | tr , ' '`; do
      AS_CASE([$ckpt_one], [address|undefined|leak|thread], [],
        [AC_MSG_ERROR([--enable-sanitizers=$ckpt_one: say address, undefined, leak or thread])])
    done
    SANITIZER_FLAGS="-fsanitize=$enable_sanitizers -fno-omit-frame-pointer"
    AS_CASE([,$enable_sanitizers,], [*,undefined,*],
      [# Programs with a file in C++ are linked as C, without what checks objects by their type.
       SANITIZER_FLAGS="$SANITIZER_FLAGS -fno-sanitize-recover=undefined -fno-sanitize=vptr"])
    AC_MSG_CHECKING([whether $CC links -fsanitize=$enable_sanitizers])
    ckpt_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $SANITIZER_FLAGS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM], [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([$CC cannot build with -fsanitize=$enable_sanitizers])])
    CFLAGS=$ckpt_save_CFLAGS
  ])
  AC_SUBST([SANITIZER_FLAGS])
  AM_CONDITIONAL([SANITIZE_THREAD],
    [AS_CASE([,$enable_sanitizers,], [*,thread,*], [true], [false])])
  AM_CONDITIONAL([SANITIZE], [test "x$enable_sanitizers" != xno])
])
