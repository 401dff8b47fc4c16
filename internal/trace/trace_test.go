package trace

import (
	"strings"
	"testing"
)

func TestWhatIsReadRunAndChangedIsTold(t *testing.T) {
	Reads("/nobody/listens")
	var b strings.Builder
	stop := To(&b)
	Reads("/proc/cpuinfo")
	Reads("/sys/class/net/eth0/mtu")
	Reads("/sys/class/net/eth0/speed")
	Runs("", []string{"sh", "-c", "echo 'a b'", ""})
	Runs("vm00", []string{"ip", "link"})
	Changes("write %q to %s", "8", "/sys/kernel/mm")
	Reads("lab.yaml")
	stop()
	Reads("/nobody/listens")
	Changes("nothing")
	want := `read    /proc/cpuinfo
read    /sys/class/net/eth0: 2 files
run     sh -c 'echo '\''a b'\''' ''
run     on vm00: ip link
change  write "8" to /sys/kernel/mm
read    lab.yaml
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
