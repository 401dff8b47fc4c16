package rack

import (
	"testing"
)

func TestAccepted(t *testing.T) {
	const head = "Num       RefCount Protocol Flags    Type St Inode Path\n"
	tests := []struct {
		name, table string
		want        bool
	}{
		{"nobody listens", head, false},
		{"a listener alone", head + "0000000000000000: 00000002 00000000 00010000 0001 01 41 /r/c.sock\n", false},
		{"a connection that waits to be accepted",
			head + "0000000000000000: 00000002 00000000 00000000 0001 03 0 /r/c.sock\n", false},
		{"an accepted connection", head + "0000000000000000: 00000003 00000000 00000000 0001 03 42 /r/c.sock\n", true},
		{"that of another socket", head + "0000000000000000: 00000003 00000000 00000000 0001 03 42 /r/c.sock2\n",
			false},
		{"a client's end has no path", head + "0000000000000000: 00000003 00000000 00000000 0001 03 43\n", false},
		{"an empty file", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := accepted([]byte(tt.table), "/r/c.sock"); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
