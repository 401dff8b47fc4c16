#!/usr/bin/env bash
# Builds the site of docs/ in out/site: the pages, the reference that is made from help and examples, and a search. The
# first time it compiles Hugo, which go fetches; then it needs no network.
set -euo pipefail
cd "$(dirname "$0")/../.."
hugo=github.com/gohugoio/hugo@v0.152.2
source=out/site-source
pages=$source/content
repository=https://github.com/rackless/rackless/blob/main

rm -rf "$source"
mkdir -p "$pages/reference" "$source/static"
cp -r hack/site/hugo.yaml hack/site/layouts "$source/"
cp hack/site/site.css report/show/base.css docs/*.svg docs/*.json "$source/static/"
cp docs/*.md ./*.md "$pages/"
mv "$pages/README.md" "$pages/_index.md"
mkdir -p "$source/static/studies" "$pages/studies"
cp docs/studies/*.md "$pages/studies/"
mv "$pages/studies/README.md" "$pages/studies/_index.md"
cp -r docs/studies/studies.db.gz docs/studies/cluster-tests "$source/static/studies/"
cp machine/finding/codes.md "$pages/reference/codes.md"
printf -- '---\nlayout: search\ntitle: Search\n---\n' >"$pages/search.md"
printf -- '---\nbuild: {render: never}\n---\n' >"$pages/reference/_index.md"
{
	echo "# The lab file"
	echo
	echo "Every key, with what it means. [lab.schema.json](../lab.schema.json) is the schema, for editors and programs."
	echo
	echo '```yaml'
	cat examples/full.yaml
	echo '```'
} >"$pages/reference/lab-file.md"
{
	echo "# Commands"
	for help in cmd/rackless/help/*.md; do
		name=$(basename "$help" .md)
		verb=${name//-/ }
		[ "$name" != rackless ] || verb=""
		case $name in *daemon) continue ;; esac # hidden
		printf '\n## rackless%s\n\n```text\n' "${verb:+ $verb}"
		# shellcheck disable=SC2086 # words of the command
		bin/rackless $verb --help
		printf '```\n'
	done
} >"$pages/reference/commands.md"

# Pages of the root stand beside those of docs here; what else lies outside of docs is in the repository.
for page in "$pages"/*.md "$pages"/studies/*.md; do
	sed -i -E -e '/^<!-- .* -->$/d' -e "s#\]\(docs/#](#g" -e "s#\]\((\.\./)+([A-Z_]+\.md)#](/\2#g" \
		-e "s#\]\((\.\./)+((LICENSE|(examples|cmd|hack|machine|lab|plan|host|rdma|vm|bench|rack|study|report|internal)(/[^)]*)?))\)#]($repository/\2)#g" \
		-e "s#\]\(((examples|LICENSE|hack)[^)]*)\)#]($repository/\1)#g" "$page"
done
(cd "$source" && "${GO:-go}" run "$hugo" --panicOnWarning --destination "$PWD/../site" --cleanDestinationDir)
echo "The site is out/site/index.html."
