// Package hostview shows a topology.Host as JSON, YAML, tables, the matrix of nvidia-smi topo -m, an SVG picture and a
// page.
//
// Every function is pure. Unknown values are "?" or left out, never 0. Texts from the machine are hostile: they cannot
// control a terminal, leave their place in a page or break a picture.
package hostview
