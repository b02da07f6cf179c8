dnl SPDX-License-Identifier: Apache-2.0
# CKPT_CC_FLAG(FLAG, VARIABLE)
# Appends FLAG to VARIABLE if the compiler takes it without a warning.
AC_DEFUN([CKPT_CC_FLAG], [
  AS_VAR_PUSHDEF([cache], [ckpt_cv_flag_$1])
  AC_CACHE_CHECK([whether $CC takes $1], [cache], [
    ckpt_save_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -Werror $1"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [AS_VAR_SET([cache], [yes])],
      [AS_VAR_SET([cache], [no])])
    CFLAGS=$ckpt_save_CFLAGS])
  AS_VAR_IF([cache], [yes], [AS_VAR_APPEND([$2], [" $1"])])
  AS_VAR_POPDEF([cache])
])

# CKPT_TARGET_CLONES
# Whether a function can be built for several instruction sets and chosen at load time.  Defines
# CKPT_HAVE_TARGET_CLONES.  Two files with a function each are linked: some compilers let the code
# that chooses clash.  Sanitizers cannot run that code, so they leave it out.
AC_DEFUN([CKPT_TARGET_CLONES], [
  AC_CACHE_CHECK([whether $CC builds functions for several instruction sets],
    [ckpt_cv_target_clones], [
    ckpt_cv_target_clones=no
    ckpt_save_CFLAGS=$CFLAGS
    ckpt_save_LIBS=$LIBS
    CFLAGS="$CFLAGS -Werror -fPIC -fvisibility=hidden"
    m4_define([CKPT_CLONES_SOURCE], [[[
#define CKPT_HAVE_TARGET_CLONES 1
#include "$srcdir/runtime/core/clones.h"
float other(float *x, int n);
]]])
    AC_COMPILE_IFELSE([AC_LANG_SOURCE(CKPT_CLONES_SOURCE [[
CKPT_CLONES static void thrice(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] *= 3;
}
float other(float *x, int n)
{
    thrice(x, n);
    return x[0];
}]])], [
      cp conftest.$ac_objext ckpt_other.$ac_objext
      LIBS="ckpt_other.$ac_objext $LIBS"
      AC_LINK_IFELSE([AC_LANG_SOURCE(CKPT_CLONES_SOURCE [[
CKPT_CLONES static void twice(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] *= 2;
}
int main(int argc, char **argv)
{
    float x[4] = {1, 2, 3, (float)argc};
    (void)argv;
    twice(x, 4);
    return other(x, 4) < 0;
}]])], [ckpt_cv_target_clones=yes])
      rm -f ckpt_other.$ac_objext])
    CFLAGS=$ckpt_save_CFLAGS
    LIBS=$ckpt_save_LIBS])
  found_clones=$ckpt_cv_target_clones
  AS_IF([test "x$enable_sanitizers" != xno],
    [found_clones="no (sanitizers)"
     AC_DEFINE([CKPT_CLONES], [], [Empty: one instruction set, for the sanitizers.])],
    [test "$found_clones" = yes],
    [AC_DEFINE([CKPT_HAVE_TARGET_CLONES], [1], [The compiler has usable target_clones.])])
])

# CKPT_VERSION_SCRIPT
# Whether the linker takes a version script.
AC_DEFUN([CKPT_VERSION_SCRIPT], [
  AC_CACHE_CHECK([whether the linker takes a version script], [ckpt_cv_version_script], [
    echo 'T_1 { global: main; local: *; };' >conftest.map
    ckpt_save_LDFLAGS=$LDFLAGS
    LDFLAGS="$LDFLAGS -Wl,--version-script=conftest.map"
    AC_LINK_IFELSE([AC_LANG_PROGRAM], [ckpt_cv_version_script=yes], [ckpt_cv_version_script=no])
    LDFLAGS=$ckpt_save_LDFLAGS
    rm -f conftest.map])
  AM_CONDITIONAL([HAVE_VERSION_SCRIPT], [test "$ckpt_cv_version_script" = yes])
])

# CKPT_ONE_OBJECT
# How objects are linked to one (ONE_OBJECT), and whether OBJCOPY then hides its inner names:
# HAVE_ONE_OBJECT and found_one_object.  Groups of sections are dissolved, or a program's own inline
# function of C++ could replace a hidden one.  Objects of -flto become machine code.
AC_DEFUN([CKPT_ONE_OBJECT], [
  AC_CHECK_TOOL([OBJCOPY], [objcopy], [no])
  AC_CACHE_CHECK([how to hide the inner names of a static library], [ckpt_cv_one_object], [
    ckpt_cv_one_object=no
    ckpt_save_LIBS=$LIBS
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[int inner(void);
int inner(void) { return 3; }]])], [
      rm -f ckpt_inner.a ckpt_whole.$ac_objext
      $AR cr ckpt_inner.a conftest.$ac_objext
      for ckpt_more in "-flinker-output=nolto-rel -Wl,--force-group-allocation" \
          "-Wl,--force-group-allocation"; do
        ckpt_link="$CC $CFLAGS -fno-sanitize=all -r -nostdlib $ckpt_more"
        OBJCOPY=$OBJCOPY $SHELL "$srcdir/build-aux/one-object" ckpt_inner.a $ckpt_link \
          -o ckpt_whole.$ac_objext >&AS_MESSAGE_LOG_FD 2>&1 || continue
        LIBS="ckpt_whole.$ac_objext $ckpt_save_LIBS"
        AC_LINK_IFELSE([AC_LANG_SOURCE([[int inner(void);
int inner(void) { return 0; }
int main(void) { return inner(); }]])], [ckpt_cv_one_object=$ckpt_link; break])
      done
      rm -f ckpt_inner.a ckpt_whole.$ac_objext])
    LIBS=$ckpt_save_LIBS])
  AS_IF([test "$ckpt_cv_one_object" = no], [found_one_object=no], [found_one_object=yes])
  AC_SUBST([ONE_OBJECT], [$ckpt_cv_one_object])
  AM_CONDITIONAL([HAVE_ONE_OBJECT], [test "$ckpt_cv_one_object" != no])
])
