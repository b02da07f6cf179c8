dnl SPDX-License-Identifier: Apache-2.0
# CKPT_SPHINX
# --with-sphinx=yes|no|auto.  Whether "make html" can build the site: Sphinx with MyST and furo,
# tried on a page.  Sets SPHINXBUILD (empty where it cannot), found_sphinx for the summary and the
# automake condition HAVE_SPHINX.
AC_DEFUN([CKPT_SPHINX], [
  CKPT_WITH([sphinx], [build the site by "make html"])
  AC_ARG_VAR([SPHINXBUILD], [sphinx-build, which makes the site])
  have_sphinx=no
  found_sphinx=no
  AS_IF([test "$with_sphinx" != no], [
    AC_CHECK_PROGS([SPHINXBUILD], [sphinx-build])
    AC_CACHE_CHECK([whether Sphinx has MyST and furo], [ckpt_cv_sphinx], [
      ckpt_cv_sphinx=no
      rm -rf conftest.site
      AS_MKDIR_P([conftest.site])
      AS_ECHO(["# Page"]) >conftest.site/index.md
      AS_IF([test -n "$SPHINXBUILD" && "$SPHINXBUILD" -q -C -b html -D extensions=myst_parser \
          -D html_theme=furo conftest.site conftest.site/html >&AS_MESSAGE_LOG_FD 2>&1],
        [ckpt_cv_sphinx=yes])
      rm -rf conftest.site])
    have_sphinx=$ckpt_cv_sphinx
    found_sphinx=$have_sphinx
    AS_IF([test "$have_sphinx" = no],
      [found_sphinx="no (not found)"
       AS_IF([test "$with_sphinx" = yes],
         [AC_MSG_ERROR(m4_normalize([--with-sphinx was asked for, but Sphinx with MyST and furo is
           missing; on Debian or Ubuntu: apt install python3-sphinx python3-myst-parser furo]))])])
  ])
  AS_IF([test "$have_sphinx" = no], [SPHINXBUILD=])
  AM_CONDITIONAL([HAVE_SPHINX], [test "$have_sphinx" = yes])
])
