package inspect

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/pci"
	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// readPCIConfig opens a config file and parses parts of it. Where the file cannot be read in places it is read whole.
func (r *reader) readPCIConfig(p string, parts pci.Part) pci.Config {
	f, err := r.fs.Open(p)
	if err != nil {
		r.failed(p, err)
		return pci.Config{}
	}
	defer f.Close()
	src, ok := f.(io.ReaderAt)
	if !ok {
		b, err := io.ReadAll(io.LimitReader(f, pci.ExtendedSize))
		if err != nil {
			r.failed(p, err)
			return pci.Config{}
		}
		src = bytes.NewReader(b)
	}
	c, err := pci.Parse(src, parts)
	if err != nil {
		r.failed(p, err)
	}
	return c
}

// Flags of a line of resource. Source: include/linux/ioport.h.
const (
	resourceIO       = 0x00000100
	resourceMemory   = 0x00000200
	resourcePrefetch = 0x00002000
	resource64       = 0x00100000
)

// parseBARs parses a resource file: a line for each resource, with its first address, its last and
// its flags. Lines 0 to 5 are the BARs, 6 is the expansion ROM, 7 to 12 the BARs of virtual
// functions, all of them together; what follows are a bridge's windows, which start at 7 in kernels
// without SR-IOV. Resources that are not there are lines of zeros.
//
// Source: drivers/pci/pci-sysfs.c, resource_show; include/linux/pci.h, "PCI resource numbers".
func parseBARs(text string, bridge bool) ([]topology.BAR, error) {
	last := words.Either(bridge, 6, 12)
	var bars []topology.BAR
	index := -1
	for line := range strings.Lines(text) {
		if index++; index > last {
			break
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return bars, fmt.Errorf("line %d: %q: want a first address, a last address and flags", index+1,
				where.Clip(strings.TrimSpace(line)))
		}
		var v [3]uint64
		for i, field := range fields {
			var err error
			if v[i], err = strconv.ParseUint(strings.TrimPrefix(field, "0x"), 16, 64); err != nil {
				return bars, fmt.Errorf("line %d: %q is not a number in hexadecimal", index+1, where.Clip(field))
			}
		}
		start, end, flags := v[0], v[1], v[2]
		if flags&(resourceIO|resourceMemory) == 0 || end <= start || end-start == math.MaxUint64 {
			continue
		}
		bars = append(bars, topology.BAR{
			Index: index, SizeBytes: end - start + 1,
			Unassigned:   start == 0 && flags&resourceMemory != 0 && index < 6,
			Prefetchable: flags&resourcePrefetch != 0, Bits64: flags&resource64 != 0, IO: flags&resourceIO != 0,
		})
	}
	return bars, nil
}
