package image

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// A driverSet is packed. The guest loads only the modules of hardware that it finds.
type driverSet struct {
	modules []module
	rows    []driverRow
}

type driverRow struct {
	alias string // shell pattern of a modalias: "pci:v00008086d000010C9sv*sd*bc*sc*i*"
	names []string
}

// companions have no alias: a card's driver requests them through modprobe, which the guest lacks.
var companions = map[string][]string{"mlx4_core": {"mlx4_en", "mlx4_ib"}}

// drivers collects the named modules that the kernel has, and their dependencies except for loaded. PCI devices match
// by their own alias, their RDMA side often as a device on the auxiliary bus.
func (s *moduleSet) drivers(names []string, loaded []module) (driverSet, error) {
	var set driverSet
	there := lists.SetOf(loaded, func(m module) string { return m.Name })
	for _, name := range names {
		mods, err := s.load(nil, append([]string{name}, companions[name]...))
		if err != nil {
			return driverSet{}, err
		}
		var order, aliases []string
		for _, m := range mods {
			if m.Name == name {
				aliases = moduleInfo(m.Data)["alias"]
			}
			if there[m.Name] {
				continue
			}
			order = append(order, m.Name)
			if !slices.ContainsFunc(set.modules, func(have module) bool { return have.Name == m.Name }) {
				set.modules = append(set.modules, m)
			}
		}
		for _, a := range aliases {
			if (strings.HasPrefix(a, "pci:") || strings.HasPrefix(a, "auxiliary:")) && !strings.ContainsAny(a,
				" \t\n") {
				set.rows = append(set.rows, driverRow{a, order})
			}
		}
	}
	return set, nil
}

func (d driverSet) table() string {
	var b strings.Builder
	for _, r := range d.rows {
		b.WriteString(r.alias + " " + strings.Join(r.names, " ") + "\n")
	}
	return b.String()
}

// pack's format suits busybox' gunzip.
func pack(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}
