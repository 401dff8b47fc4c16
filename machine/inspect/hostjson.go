package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// sniffHostJSON looks for the schema, the first key.
func sniffHostJSON(text []byte) bool {
	head := bytes.TrimLeft(text, " \t\r\n")
	if len(head) == 0 || head[0] != '{' {
		return false
	}
	return bytes.Contains(head[:min(len(head), 200)], []byte(`"`+topology.Schema+`"`))
}

// parseHostJSON ignores findings, which are derived from the host.
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
	// A host in a file is never this machine.
	h.Provenance.ThisSystem = false
	h.Provenance.Name = name
	h.Complete()
	return h, nil
}
