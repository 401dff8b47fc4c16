package guest

import (
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIdentityInWords(t *testing.T) {
	addr := netip.MustParsePrefix("10.0.0.1/24")
	id := Identity{Name: "vm00", MachineID: "0123456789abcdef0123456789abcdef", MTU: 4200,
		Hosts: []string{"10.0.0.1 vm00", "10.0.1.1 vm00-eth1"}, NICs: []NIC{
			{Device: "eth0", MAC: "52:54:00:00:00:01", Addr: addr},
			{Device: "eth1", Path: "pci0000:20/0000:20:00.0/0000:*:00.0", Addr: addr},
			{Device: "eth2", Path: "pci0000:00/0000:00:02.0/0000:*:00.0", MAC: "52:54:00:00:00:03", Addr: addr},
		}}
	w := id.words()
	if got := strings.Join(w[:3], " "); got != "configure vm00 0123456789abcdef0123456789abcdef" {
		t.Errorf("got %s", got)
	}
	seed := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9a-f]{64}$`)
	if other := newSeed(); !seed.MatchString(w[4]) || !seed.MatchString(other) || other == w[4] {
		t.Errorf("the seed is %q, and another is %q", w[4], other)
	}
	want := []string{
		"4200", "eth0", "52:54:00:00:00:01", "10.0.0.1/24",
		"eth1@pci0000:20/0000:20:00.0/0000:*:00.0", "-", "10.0.0.1/24",
		"eth2@pci0000:00/0000:00:02.0/0000:*:00.0", "52:54:00:00:00:03", "10.0.0.1/24",
	}
	if none, some := hosts(nil), hosts(id.Hosts); none != "-" || some != "10.0.0.1=vm00,10.0.1.1=vm00-eth1" {
		t.Errorf("names are %q and %q", none, some)
	}
	if diff := cmp.Diff(want, w[5:]); diff != "" { // skips clock and seed
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSetupIsBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ said, want string }{
		"a line without an end":       {strings.Repeat("x", 1<<10), "a line of more than 64 KiB"},
		"an answer without an end":    {"a line\nb line\n", "an answer of more than 1 MiB"},
		"it is ready again and again": {"ready\n", "an answer of more than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there := net.Pipe()
			defer here.Close()
			go func() { _, _ = io.Copy(io.Discard, there) }()
			written := 0
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					n, err := io.WriteString(there, test.said)
					if written += n; err != nil {
						return
					}
				}
			}()
			s := NewSetup(here)
			_, err := s.ask(t.Context(), []string{"configure"})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
			here.Close()
			if <-ended; written > maxSetup+2*maxSetupLine {
				t.Errorf("%d bytes were read", written)
			}
		})
	}
}
