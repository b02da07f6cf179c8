dnl SPDX-License-Identifier: Apache-2.0
# CKPT_WITH(NAME, WHAT)
# An option --with-NAME=yes|no|auto; the answer is in with_NAME.
AC_DEFUN([CKPT_WITH], [
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1=yes|no|auto], [$2 @<:@auto@:>@])],
    [], [with_$1=auto])
  AS_CASE([$with_$1], [yes|no|auto], [],
    [AC_MSG_ERROR([--with-$1=$with_$1: say yes, no or auto])])
])

# CKPT_WHY_NOT(VARIABLE)
# Sets ckpt_why to the reason why PKG_CHECK_MODULES(VARIABLE, ...) did not find something: it is not
# there, or it is and requires something that is not.
AC_DEFUN([CKPT_WHY_NOT], [
  ckpt_why=`AS_ECHO(["$$1_PKG_ERRORS"]) | sed -n "/virtual:world/d
s/^Package '\(.*\)', required by '\(.*\)', not found.*/\2 requires \1, not found/p"`
  AS_IF([test -z "$ckpt_why"], [ckpt_why="not found"])
])

# CKPT_WITH_MODULES(NAME, VARIABLE, MODULES, WHAT)
# An optional part that pkg-config knows.  Sets VARIABLE_CFLAGS and VARIABLE_LIBS, found_NAME for
# the summary, and the automake condition HAVE_VARIABLE.
AC_DEFUN([CKPT_WITH_MODULES], [
  CKPT_WITH([$1], [$4])
  have_$1=no
  found_$1=no
  AS_IF([test "$with_$1" != no],
    [PKG_CHECK_MODULES([$2], [$3],
      [have_$1=yes
       found_$1=yes],
      [CKPT_WHY_NOT([$2])
       found_$1="no ($ckpt_why)"
       AS_IF([test "$with_$1" = yes],
         [AC_MSG_ERROR([--with-$1 was asked for, but pkg-config does not give: $3: $ckpt_why])])])])
  AM_CONDITIONAL([HAVE_$2], [test "$have_$1" = yes])
])
