package lab

import "github.com/rackless/rackless/internal/words"

// HostNames are the lines of /etc/hosts of every node. The first NIC of a node has its name, the
// others are NODE-NIC. NICs without an address have no name.
func (l *Lab) HostNames() []string {
	var lines []string
	for _, n := range l.Nodes {
		for i, nic := range n.NICs {
			name := n.Name
			name += words.If(i > 0, "-"+nic.Name)
			if nic.Addr.IsValid() {
				lines = append(lines, nic.Addr.Addr().String()+" "+name)
			}
		}
	}
	return lines
}
