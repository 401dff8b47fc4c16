#!/usr/bin/env bash
# Builds the site of docs/ in out/site: the pages, the reference that is made from help and examples, and a search. The
# first time it fetches mkdocs-material into an environment of its own in the cache; then it needs no network.
set -euo pipefail
cd "$(dirname "$0")/../.."
env=${XDG_CACHE_HOME:-$HOME/.cache}/rackless/site
pages=out/site-pages
repository=https://github.com/rackless/rackless/blob/main

if ! cmp -s hack/site/requirements.txt "$env/requirements.txt"; then
	echo "installing mkdocs-material in $env"
	rm -rf "${env:?}"
	python3 -m venv "$env"
	"$env/bin/pip" install --quiet --disable-pip-version-check -r hack/site/requirements.txt
	cp hack/site/requirements.txt "$env/"
fi

rm -rf "$pages"
mkdir -p "$pages/reference"
cp -r docs/*.md docs/*.svg docs/*.json docs/studies "$pages/"
cp ./*.md "$pages/"
mv "$pages/README.md" "$pages/index.md"
cp finding/codes.md "$pages/reference/codes.md"
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
	sed -i -E -e "s#\]\((\.\./)+(README\.md)#](index.md#g" -e "s#\]\(docs/#](#g" \
		-e "s#\]\(\.\./(CONTRIBUTING|GOVERNANCE|CODE_OF_CONDUCT|SECURITY|CHANGELOG)\.md#](\1.md#g" \
		-e "s#\]\((\.\./)+((examples|LICENSE|cmd|hack|image|study|bench|inspect|finding|internal)[^)]*)\)#]($repository/\2)#g" \
		-e "s#\]\(((examples|LICENSE|hack)[^)]*)\)#]($repository/\1)#g" "$page"
done
NO_MKDOCS_2_WARNING=1 "$env/bin/mkdocs" build --quiet --strict --config-file hack/site/mkdocs.yml
echo "The site is out/site/index.html."
