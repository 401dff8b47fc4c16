package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// sniffHostJSON reports whether text begins as what "rackless inspect -o json" prints. The schema
// is the first key of it.
func sniffHostJSON(text []byte) bool {
	head := bytes.TrimLeft(text, " \t\r\n")
	if len(head) == 0 || head[0] != '{' {
		return false
	}
	return bytes.Contains(head[:min(len(head), 200)], []byte(`"`+topology.Schema+`"`))
}

// parseHostJSON reads what "rackless inspect -o json" printed. Its findings are not read: they follow from the host.
func parseHostJSON(text []byte, name string) (*topology.Host, error) {
	var doc struct {
		Schema string `json:"schema"`
		topology.Host
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: not as \"rackless inspect -o json\" prints a host: %w", name, err)
	}
	if doc.Schema != topology.Schema {
		return nil, fmt.Errorf("%s: schema %q, want %q", name, where.Clip(doc.Schema), topology.Schema)
	}
	h := &doc.Host
	// Whatever machine printed it, what is in a file is not the machine that runs this.
	h.Provenance.ThisSystem = false
	h.Provenance.Name = name
	h.Complete()
	return h, nil
}
