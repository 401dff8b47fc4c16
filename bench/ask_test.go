package bench

import (
	"testing"
)

func TestListeningPortsAreReadFromProc(t *testing.T) {
	const tcp4 = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 10
   1: 0200000A:4E21 0100000A:1234 01 00000000:00000000 00:00000000 00000000     0        0 11
`
	const tcp6 = `  sl  local_address                         remote_address                        st tx_queue
   0: 00000000000000000000000000000000:4E22 00000000000000000000000000000000:0000 0A 00000000:00000000
`
	for port, want := range map[int]bool{20000: true, 20001: false, 20002: true, 20003: false, 0: false} {
		if got := listens([]byte(tcp4+tcp6), port); got != want {
			t.Errorf("port %d: got %v, want %v", port, got, want)
		}
	}
	for _, garbage := range []string{"", "a b c 0A", "0: x:zz 0 0A", "0: :4E20 0 0a"} {
		if listens([]byte(garbage), 20000) {
			t.Errorf("%q: a listening port is seen", garbage)
		}
	}
}
