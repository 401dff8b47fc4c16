package hostview

import (
	"fmt"
	"strings"
)

// A shade is a colour by its meaning, on a light and on a dark ground. The colours of things are
// from the palette of Okabe and Ito, which readers with any common colour vision can tell apart,
// made darker or lighter until text on them or beside them can be read; no meaning is carried by
// colour alone. Those of the page are the ones of the reports.
type shade struct{ name, light, dark string }

var shades = []shade{
	{"bg", "#ffffff", "#14181d"}, {"fg", "#1b1f24", "#e6eaee"}, {"soft", "#57606a", "#a3adb8"},
	{"line", "#c4cad1", "#47515c"},
	{"grid", "#e3e7eb", "#2b323a"}, {"box", "#f5f7f9", "#1d2329"}, {"room", "#ffffff", "#171c21"},
	{"root", "#f5f7f9", "#1d2329"},
	{"card", "#ffffff", "#262d35"}, {"trunk", "#8b949e", "#6e7883"}, {"wire", "#57606a", "#a3adb8"},
	{"gpu", "#00795a", "#3fd0a4"}, {"nic", "#0067a5", "#5cb6f0"}, {"disk", "#9b3d86", "#e69bd3"},
	{"screen", "#8b949e", "#6e7883"},
	{"other", "#6f5500", "#dfc94a"}, {"nvlink", "#00795a", "#3fd0a4"},
	{"error", "#b3240e", "#ff8a75"}, {"warning", "#b35c00", "#ffb454"}, {"info", "#0067a5", "#5cb6f0"},
	{"k0", "#9ec9e8", "#2a6f9f"}, {"k1", "#f2c184", "#8f5a12"}, {"k2", "#9fdcc8", "#1b7a60"},
	{"k3", "#e2b6d3", "#874a75"},
	{"k4", "#efe28f", "#77691a"}, {"k5", "#c3c9d0", "#566069"}, {"hatch", "#1b1f24", "#e6eaee"},
	{"link", "#0550ae", "#79b8ff"},
	{"m-nv", "#004d3a", "#3fd0a4"}, {"m-nv-fg", "#ffffff", "#06231a"}, {"m-pix", "#0d3757", "#a3d4f5"},
	{"m-pix-fg", "#ffffff", "#06182a"},
	{"m-pxb", "#1a537c", "#74b4e0"}, {"m-pxb-fg", "#ffffff", "#06182a"}, {"m-phb", "#2a6f9f", "#4a90c4"},
	{"m-phb-fg", "#ffffff", "#06182a"},
	{"m-node", "#a3c8e2", "#234e6e"}, {"m-node-fg", "#10202c", "#dfefff"}, {"m-sys", "#e8f1f8", "#1c2c3a"},
	{"m-sys-fg", "#10202c", "#c8d6e2"},
}

// variables is the style sheet's part with the colours. Paper is white, whatever the screen.
func variables(selector string) string {
	var light, dark strings.Builder
	for _, s := range shades {
		fmt.Fprintf(&light, "--%s:%s;", s.name, s.light)
		fmt.Fprintf(&dark, "--%s:%s;", s.name, s.dark)
	}
	return fmt.Sprintf("%[1]s{color-scheme:light dark;%[2]s}\n@media screen and "+
		"(prefers-color-scheme:dark){%[1]s{%[3]s}}\n", selector, light.String(), dark.String())
}

// pictureRules are the rules of the SVG as property=shade; a program that does not know variables
// takes the light colour, which stands before it.
var pictureRules = []struct{ selector, fixed, fill, stroke string }{
	{".hv", `font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;`, "", ""},
	{".hv text", "pointer-events:none;white-space:pre;", "fg", ""},
	{".hv .ground", "", "bg", ""},
	{".hv .soft", "", "soft", ""},
	{".hv .late", "", "warning", ""},
	{".hv .id", "", "fg", ""},
	{".hv .package", "stroke-width:1.5;", "box", "line"},
	{".hv .room", "stroke-width:1.5;", "room", "soft"},
	{".hv .odd", "stroke-dasharray:6 4;", "", "warning"},
	{".hv .root", "stroke-width:1;", "root", "grid"},
	{".hv .panel", "stroke-width:1;", "box", "line"},
	{".hv .cache", "stroke-width:1;", "box", "trunk"},
	{".hv .bridge", "stroke-width:1;", "card", "trunk"},
	{".hv .card", "stroke-width:1;", "card", "line"},
	{".hv .band", "", "", ""},
	{".hv .band.gpu", "", "gpu", ""}, {".hv .band.nic", "", "nic", ""}, {".hv .band.disk", "", "disk", ""},
	{".hv .band.screen", "", "screen", ""}, {".hv .band.other", "", "other", ""},
	{".hv .trunk", "fill:none;", "", "trunk"},
	{".hv .wire", "fill:none;", "", "wire"},
	{".hv .slow", "stroke-dasharray:7 3;", "", "warning"},
	{".hv .dim", "stroke-dasharray:2 3;", "", ""},
	{".hv .nvlink", "fill:none;stroke-linecap:round;opacity:.75;", "", "nvlink"},
	{".hv .k0", "", "k0", ""}, {".hv .k1", "", "k1", ""}, {".hv .k2", "", "k2", ""}, {".hv .k3", "", "k3", ""},
	{".hv .k4", "", "k4", ""}, {".hv .k5", "", "k5", ""},
	{".hv .split", "fill:none;stroke-width:1.2;", "", "box"},
	{".hv .hatch", "fill:none;stroke-width:1.4;", "", "hatch"},
	{".hv .error", "", "error", ""},
	{".hv .warning", "", "warning", ""},
	{".hv .info", "", "info", ""},
	{".hv .sign", "stroke-width:1.6;stroke-linecap:round;fill:none;", "", "bg"},
}

// pictureStyle is the style sheet of the SVG without its colours.
func pictureStyle() string {
	light := map[string]string{}
	for _, s := range shades {
		light[s.name] = s.light
	}
	var b strings.Builder
	for _, r := range pictureRules {
		body := r.fixed
		for _, c := range []struct{ property, shade string }{{"fill", r.fill}, {"stroke", r.stroke}} {
			if c.shade != "" {
				body += fmt.Sprintf("%s:%s;%[1]s:var(--%[3]s);", c.property, light[c.shade], c.shade)
			}
		}
		if body != "" {
			fmt.Fprintf(&b, "%s{%s}\n", r.selector, body)
		}
	}
	return b.String()
}
