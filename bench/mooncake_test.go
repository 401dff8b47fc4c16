package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestMooncakeGivesTheRateThatItPrints(t *testing.T) {
	t.Parallel()
	read := func(name string) []byte {
		return readFile(t, "testdata/mooncake/recorded-0.3.13-connectx-tcg-"+name+".txt")
	}
	write, sent := read("write"), Options{Packets: Packets{Sent: 35592 - 22664, Received: 59712 - 58904}}
	for _, c := range []struct {
		engine     string
		text       []byte
		o          Options
		want, fail string
	}{
		{"mooncake_write", write, sent, "bw_average 65536 808 0.084523 Gb/s", ""},
		{"mooncake_read", read("read"), Options{Packets: Packets{Sent: 692, Received: 58904 - 47832}},
			"bw_average 65536 692 0.072381 Gb/s", ""},
		// One packet less than the data takes.
		{"mooncake_write", write, Options{Packets: Packets{Sent: 202*4*16 - 1, Received: 1 << 40}}, "",
			"12927 packets passed the RDMA device, and 52953088 bytes take 12928"},
		{"mooncake_read", write, sent, "", "packets passed the RDMA device"},
		{"mooncake_write", read("refused"), sent, "", "it gave up: SocketHandShakePlugin: connect()10.0.0.1:24695: " +
			"Connection refused [111]"},
		{"mooncake_write", bytes.Replace(write, []byte("batch count 202"), []byte("batch count 0"), 1), sent, "",
			"nothing was moved"},
		{"mooncake_write", bytes.Replace(write, []byte("batch count 202"), []byte("batch count 303"), 1),
			Options{Packets: Packets{Sent: 1 << 40}}, "", "303 batches are 0.1268 Gb/s"},
		{"mooncake_write", write, Options{Bytes: 4096, Packets: sent.Packets}, "", "202 batches are 0.0053 Gb/s"},
		{"mooncake_write", nil, sent, "", `the line "Test completed" is missing`},
	} {
		figures, err := mustEngine(t, c.engine).parse(Output{Stderr: c.text}, c.o)
		var bad *BadResultError
		if got := strings.Join(figureWords(figures), ", "); got != c.want || (err == nil) != (c.fail == "") {
			t.Errorf("%s: %s, %v; want %s%s", c.engine, got, err, c.want, c.fail)
		}
		if c.fail != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%s: %v, want %s", c.engine, err, c.fail)
		}
	}
}

func TestMooncakeRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	client, server := Endpoint{Node: "a", Device: "mlx5_0"}, Endpoint{Node: "b", Device: "mlx5_0"}
	if err := (mooncake{}).check(client, server, Options{Bytes: 8 << 20}); err == nil ||
		!strings.Contains(err.Error(), "do not fit into the buffer") {
		t.Error(err)
	}
}
