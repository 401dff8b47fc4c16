#!/usr/bin/env bash
# Makes the picture of a report's page that README.md shows, of its head and first charts. It is that page, of a real run.
#
#   bin/rackless bench pair && hack/page.sh ~/.local/share/rackless/results/pair/TIME/index.html >docs/report.svg
set -euo pipefail
width=1100 height=1400
cat <<END
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" width="$width" height="$height">
<title>The page that rackless bench writes of two emulated nodes</title>
<foreignObject width="$width" height="$height">
<body xmlns="http://www.w3.org/1999/xhtml">
END
sed -n '/^<style>/,/<\/style>/{s#^<style>#&<![CDATA[#; s#</style>.*#]]></style>#; p}' "$1"
# Inside of XML, each drawing says what it is.
sed -n '/^<body>/,/id="c1-3-c"/{/^<body>/d; /id="c1-3-c"/d; s#<svg #<svg xmlns="http://www.w3.org/2000/svg" #; p}' "$1"
echo '</div></section></main></body></foreignObject></svg>'
