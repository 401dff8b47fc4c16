package nccl

import (
	"slices"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/inspect/xmltree"
)

// limits of what is read. A machine has some hundred elements.
var limits = xmltree.Limits{Bytes: 16 << 20, Elements: 100_000, Depth: 64}

type element = xmltree.Element

// parents lists where the elements that are read may stand. An element in another place would be
// lost without a word, so it is an error. Elements of other names are left out with all they hold, and a note says so:
// newer versions have more (the nodes of plugins).
var parents = map[string][]string{
	"cpu":    {"system"},
	"pci":    {"cpu", "pci"},
	"gpu":    {"pci"},
	"nic":    {"cpu", "pci"},
	"net":    {"nic"},
	"nvlink": {"gpu"},
	"xgmi":   {"gpu"},
	"c2c":    {"gpu"},
}

// parseTree reads the elements that are known, and returns the first of each other name.
func parseTree(b []byte) (root *element, unknown []*element, err error) {
	root, err = xmltree.Read(b, limits)
	if err == nil {
		err = checkRoot(root)
	}
	if err == nil {
		err = keepKnown(root, &unknown)
	}
	return root, unknown, err
}

// keepKnown leaves out elements of other names, and reports one that stands where it cannot.
func keepKnown(e *element, unknown *[]*element) error {
	e.Kids = slices.DeleteFunc(e.Kids, func(k *element) bool {
		isUnknown := parents[k.Name] == nil
		if isUnknown && !slices.ContainsFunc(*unknown, func(u *element) bool { return u.Name == k.Name }) {
			*unknown = append(*unknown, k)
		}
		return isUnknown
	})
	for _, k := range e.Kids {
		if want := parents[k.Name]; !slices.Contains(want, e.Name) {
			return where.At(k.Line, "<%s> in <%s>; want it in <%s>", k.Name, e.Name, want[0])
		}
		if err := keepKnown(k, unknown); err != nil {
			return err
		}
	}
	return nil
}

// checkRoot tells a topology from what else is given in its place.
func checkRoot(e *element) error {
	switch e.Name {
	case "system":
		return nil
	case "graphs", "graph":
		return where.At(e.Line, "this is a graph of NCCL (NCCL_GRAPH_DUMP_FILE): it has rings and trees, "+
			"not the machine; give what NCCL_TOPO_DUMP_FILE writes")
	case "topology":
		return where.At(e.Line, "this is a topology of hwloc, not of NCCL")
	}
	return where.At(e.Line, "the file starts with <%s>; want <system>, as NCCL_TOPO_DUMP_FILE "+
		"writes it", where.Clip(e.Name))
}
