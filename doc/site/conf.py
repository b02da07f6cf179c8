# SPDX-License-Identifier: Apache-2.0
# The site: the Markdown of doc/ as build-aux/site lays it out, with the theme furo.
import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

project = "libckpt"
html_title = "libckpt"
copyright = "libckpt contributors, Apache-2.0"
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
root_doc = "index"
highlight_language = "text"
smartquotes = False  # options begin with two hyphens
html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


class LinkCalls(SphinxPostTransform):
    """Links a call or program that stands in code to its page of the manual."""

    default_priority = 400
    name = re.compile(r"(ckpt_[a-z0-9_]+)(\([^()]*\))?$|([a-z]+-(?:train|sample|encode|decode))( |$)")

    def target(self, text):
        if re.match(r"ckpt (advise|plan|machine|bench|info)\b", text):
            return "ckpt-command"
        found = self.name.match(text)
        return found and (found.group(1) or found.group(3))

    def run(self):
        labels = self.env.get_domain("std").anonlabels
        for literal in list(self.document.findall(nodes.literal)):
            page, place = labels.get(self.target(literal.astext()), (None, None))
            in_link = isinstance(literal.parent, (nodes.reference, nodes.title))
            if page is None or in_link:
                continue
            there = self.app.builder.get_relative_uri(self.env.docname, page) + "#" + place
            link = nodes.reference("", "", refuri=there, internal=True)
            literal.replace_self(link)
            link += literal


def setup(app):
    app.add_post_transform(LinkCalls)
