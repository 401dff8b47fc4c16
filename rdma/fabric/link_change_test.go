package fabric

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChangingOneSettingKeepsTheOthers(t *testing.T) {
	have := []PortCounters{
		{Name: "vm00", Link: Link{Rate: 1e9, Loss: 0.5}},
		{Name: "vm01"},
	}
	tests := []struct {
		name  string
		ports []string
		clear bool
		edits []LinkEdit
		want  []PortLink
		err   string
	}{
		{"on all ports", nil, false, []LinkEdit{{"delay", "1ms"}},
			[]PortLink{{"vm00", Link{Rate: 1e9, Loss: 0.5, Delay: time.Millisecond}},
				{"vm01", Link{Delay: time.Millisecond}}}, ""},
		{"on one", []string{"vm00"}, false, []LinkEdit{{"rate", "10Mbit"}},
			[]PortLink{{"vm00", Link{Rate: 1e7, Loss: 0.5}}}, ""},
		{"0 takes one away", []string{"vm00"}, false, []LinkEdit{{"loss", "0"}},
			[]PortLink{{"vm00", Link{Rate: 1e9}}}, ""},
		{"the last of two counts", []string{"vm01"}, false, []LinkEdit{{"loss", "1%"}, {"loss", "2%"}},
			[]PortLink{{"vm01", Link{Loss: 0.02}}}, ""},
		{"clear takes all away", nil, true, nil, []PortLink{{"vm00", Link{}}, {"vm01", Link{}}}, ""},
		{"clear and more", []string{"vm00"}, true, []LinkEdit{{"seed", "7"}, {"loss", "1%"}},
			[]PortLink{{"vm00", Link{Loss: 0.01, Seed: 7}}}, ""},
		{"a port is set down and keeps the rest", []string{"vm00"}, false, []LinkEdit{{DownKey, "yes"}},
			[]PortLink{{"vm00", Link{Down: true, Rate: 1e9, Loss: 0.5}}}, ""},
		{"and up again", []string{"vm01"}, false, []LinkEdit{{DownKey, "yes"}, {DownKey, "no"}},
			[]PortLink{{"vm01", Link{}}}, ""},
		{"a port that is not there", []string{"vm00", "vm02"}, true, nil, nil,
			"--port vm02: the switch has no such port; it has vm00, vm01"},
		{"what does not fit together", nil, false, []LinkEdit{{"burst", "1KiB"}}, nil,
			"port vm01: link: burst of 1024 bytes without a rate: want 0, or a rate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ChangeLinks(have, tt.ports, tt.clear, tt.edits)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || text != tt.err {
				t.Errorf("error %q, want %q; links (-want +got):\n%s", text, tt.err, diff)
			}
		})
	}
}
