package simulate

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
)

const captured = "topology: {form: leaf-spine, hosts: 2, leaves: 2, spines: 1, rate: 100Gbit}\n" +
	"switch: {buffer: 256KiB, alpha: 0.0625}\n" +
	"traffic: [{pattern: incast, to: h0, senders: 3, bytes: 256KiB}]"

// A capture of a link has the headers of each packet that crossed it, in the order of time, with the length that the
// packet has with its data.
func TestCapture(t *testing.T) {
	for link, names := range map[string]string{"h0": "s0:0 to h0,h0 to s0:0", "s0:2": "s0:2 to s2:0,s2:0 to s0:2"} {
		var file bytes.Buffer
		c := config(t, captured)
		k, err := NewCapture(c, link, &file)
		if err != nil {
			t.Fatal(err)
		}
		result := Run(c, never)
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatal(err)
		}
		var count [2]int
		data, last := 0, int64(-1)
		for {
			frame, ci, err := r.ReadPacketData()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			at := ci.Timestamp.UnixNano()
			if at < last || at > int64(result.Time) || len(frame) > maxHead+len(noData) || ci.Length < len(frame) {
				t.Fatalf("%s: %d bytes of %d at %d after %d", link, len(frame), ci.Length, at, last)
			}
			last = at
			count[ci.InterfaceIndex]++
			if ci.Length > 1000 {
				data++
			}
		}
		var have []string
		for i := range r.NInterfaces() {
			in, err := r.Interface(i)
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, in.Name)
		}
		if got := strings.Join(have, ","); got != names {
			t.Errorf("%s: interfaces %s, want %s", link, got, names)
		}
		// All data comes to h0, and that of two of the three senders from the other leaf.
		want := map[string]int{"h0": 3 * 256, "s0:2": 2 * 256}[link]
		if data < want || count[0] == 0 || count[1] == 0 {
			t.Errorf("%s: %d packets with data, want %d; %v in all", link, data, want, count)
		}
	}
}

// tshark takes all packets of a capture for RoCE or pauses, none of them malformed.
func TestCaptureIsReadByTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Fatal("tshark is needed: hack/setup.sh installs it")
	}
	name := filepath.Join(t.TempDir(), "link.pcapng")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	c := config(t, "topology: {form: star, hosts: 4, rate: 100Gbit}\nswitch: {buffer: 256KiB, alpha: 0.0625, "+
		"ecn: \"4KiB:16KiB:50%\"}\ntraffic: [{pattern: incast, to: h0, senders: 3, bytes: 256KiB}]")
	k, err := NewCapture(c, "h1", file)
	if err != nil {
		t.Fatal(err)
	}
	Run(c, never)
	if err := errors.Join(k.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-n", "-r", name, "-T", "fields", "-e", "_ws.col.Protocol", "-e",
		"infiniband.bth.opcode", "-e", "_ws.malformed", "-e", "_ws.expert.message").Output()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for line := range strings.Lines(string(out)) {
		kinds[strings.TrimSpace(line)]++
	}
	// First, middle and last packets of writes, acknowledgements, CNPs, and pauses.
	for _, want := range []string{"RRoCE\t6", "RRoCE\t7", "RRoCE\t8", "RRoCE\t17", "RRoCE\t129", "MAC CTRL"} {
		if kinds[want] == 0 {
			t.Errorf("no packet %q", want)
		}
		delete(kinds, want)
	}
	if len(kinds) > 0 {
		t.Errorf("others: %v", kinds)
	}
}

// A link that is not there is refused, and an error of the file is returned at the end.
func TestCaptureFails(t *testing.T) {
	c := config(t, captured)
	for _, link := range []string{"", "h4", "s0", "s0:3", "s3:0", "s0:02"} {
		if _, err := NewCapture(c, link, io.Discard); err == nil || !strings.Contains(err.Error(), "want a host such") {
			t.Errorf("link %q: %v", link, err)
		}
	}
	full := errors.New("disk full")
	k, err := NewCapture(c, "h0", brokenFile{full})
	if err != nil {
		t.Fatal(err)
	}
	if r := Run(c, never); r.Unfinished > 0 {
		t.Errorf("%d flows did not end", r.Unfinished)
	}
	if err := k.Close(); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}

// brokenFile is a writer that fails.
type brokenFile struct{ err error }

func (f brokenFile) Write([]byte) (int, error) { return 0, f.err }
