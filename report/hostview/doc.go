// Package hostview shows a topology.Host: as JSON and YAML for programs; as tables, the matrix of nvidia-smi topo -m,
// an SVG picture and a page for people.
//
// Every function is pure: the same Document gives the same bytes. Unknown values are shown as "?" or left out, never
// as 0. Texts from the machine (names, models, file names) are treated as hostile: they cannot control a terminal,
// leave their place in a page or break a picture.
package hostview
