package adopt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render/export"
)

type proxmox struct{}

var proxmoxKey = lazyregexp.New(`(?m)^(?:affinity|boot|cores|cpu|memory|name|numa\d*|ostype|sockets|vcpus): `)

// syntaxOf returns nil for other texts.
func syntaxOf(text string) syntax {
	switch {
	case strings.HasPrefix(strings.TrimSpace(text), "<"):
		return domainXML{}
	case proxmoxKey().MatchString(text):
		return proxmox{}
	}
	return nil
}

func (proxmox) emulator(string, topology.CPUSet) (string, error) {
	return "", errors.New("in Proxmox VE the affinity of a machine holds QEMU's own threads too")
}

func (proxmox) reorder(string, []int) (string, error) {
	return "", errors.New("no pins of single virtual CPUs in Proxmox VE")
}

func (proxmox) memory(string, *topology.Tenant, *topology.Host) (string, error) {
	return "", errors.New("the memory of a machine of Proxmox VE is bound with its CPUs, by numaN")
}

var placed = lazyregexp.New(`^(affinity|numa\d*): `)

var cellCPUs = lazyregexp.New(`cpus=[^,]*,`)

func (proxmox) place(text string, p *placement) (string, error) {
	files, err := export.Proxmox(p.input)
	if err != nil {
		return "", err
	}
	var fresh []string
	for line := range strings.Lines(string(files[0].Data)) {
		if placed().MatchString(line) {
			fresh = append(fresh, line)
		}
	}
	if !p.absent.IsEmpty() { // the guest's only node includes them
		if len(fresh) > 3 {
			return "", errors.New("virtual CPUs that can be plugged in later are in none of its NUMA nodes")
		}
		for i := range fresh {
			fresh[i] = cellCPUs().ReplaceAllString(fresh[i], fmt.Sprintf("cpus=0-%d,", p.vcpus-1))
		}
	}
	// Below the first section are snapshots, which stay.
	now, snapshots, cut := strings.Cut(text, "\n[")
	if cut {
		now, snapshots = now+"\n", "["+snapshots
	}
	var b strings.Builder
	done := false
	for line := range strings.Lines(now) {
		if !placed().MatchString(line) {
			b.WriteString(line)
			continue
		}
		if !done {
			b.WriteString(strings.Join(fresh, ""))
		}
		done = true
	}
	if !done {
		fmt.Fprintf(&b, "%s", strings.Join(fresh, ""))
	}
	return b.String() + snapshots, nil
}
