package conduct

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study/store"
)

// WriteInvocation writes how a tool was started and what it printed.
func WriteInvocation(w io.Writer, x store.Invocation) error {
	var s bench.Sample
	if err := json.Unmarshal(x.Raw, &s); err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "== %s\n", s.Test)
	for _, c := range []struct{ who, node, command string }{{"client", s.Client, s.Command},
		{"server", s.Server, s.ServerCommand}} {
		if c.command != "" {
			fmt.Fprintf(&b, "%s on %s: %s\n", c.who, c.node, c.command)
		}
	}
	if s.Error != "" {
		fmt.Fprintf(&b, "failed: %s\n", s.Error)
	}
	// Printed is what a good attempt printed; of a failed one the sample has the beginning and the end.
	switch {
	case len(x.Printed) > 0:
		for _, p := range x.Printed {
			fmt.Fprintf(&b, "-- %s\n%s", p.Name, p.Text)
			if !bytes.HasSuffix(p.Text, []byte("\n")) {
				b.WriteByte('\n')
			}
		}
	case s.Output != "":
		b.WriteString(s.Output)
	default:
		b.WriteString("nothing of what it printed was kept\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}
