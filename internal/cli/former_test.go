package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFormerFlagsSetThePresentOnes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, file, host, out, form, said string }{
		{args: "--snapshot a", host: "a", said: "--snapshot is now --host"},
		{args: "--snapshot a --snapshot b", host: "b", said: "--snapshot is now --host"},
		{args: "-w x", out: "x", said: "-w is now --out"},
		{args: "--write x", out: "x", said: "-w is now --out"},
		{args: "--html x", out: "x", form: "html", said: "--html is now -o html --out"},
		{args: "--html x --snapshot a", host: "a", out: "x", form: "html",
			said: "--html is now -o html --out; --snapshot is now --host"},
		{args: "--host a", host: "a"},
		{args: "--host a --snapshot b", said: "--snapshot is --host now: leave one of the two out"},
		{args: "--html x --out y", said: "--html is -o html --out now: leave one of the two out"},
		{args: "--format pdf", said: `invalid argument "pdf" for "-o, --output" flag: want text or html`},
		{args: "--host a", file: "up: {snapshot: b}", host: "a"},
		{args: "--snapshot a", file: "up: {host: b}", host: "a", said: "--snapshot is now --host"},
		{file: "up: {snapshot: b}", host: "b", said: "--snapshot is now --host"},
		{file: "all: {snapshot: b}", said: "no such flag"},
	} {
		root := &cobra.Command{Use: "prog"}
		up := &cobra.Command{Use: "up", RunE: func(*cobra.Command, []string) error { return nil }}
		root.AddCommand(up)
		var host, out, form string
		up.Flags().StringVar(&host, "host", "", "")
		up.Flags().StringVar(&out, "out", "", "")
		EnumFlag(up, &form, "output", "o", "", "text", "html")
		Renamed(up, "snapshot", "", "host")
		Renamed(up, "write", "w", "out")
		Renamed(up, "format", "", "output")
		Replaced(up, "html", "", "-o html --out", func(file string) error {
			return errors.Join(up.Flags().Set("output", "html"), up.Flags().Set("out", file))
		}, "output", "out")
		said, err := []string{}, up.ParseFlags(strings.Fields(tt.args))
		var d Defaults
		settle := func() {
			if err == nil {
				var more []string
				more, err = Settle(up)
				said = append(said, more...)
			}
		}
		settle()
		if err == nil {
			d, err = ReadDefaults(root, "f.yaml", []byte(tt.file))
		}
		if err == nil {
			err = d.Set(up, func(string) string { return "" })
		}
		settle()
		text := strings.Join(said, "; ")
		if err != nil {
			text = err.Error()
		}
		if host != tt.host && err == nil || out != tt.out && err == nil || form != tt.form && err == nil ||
			text != tt.said && (err == nil || !strings.Contains(text, tt.said)) {
			t.Errorf("%q, %q: host %q, out %q, form %q, %q; want %+v", tt.args, tt.file, host, out, form, text, tt)
		}
		if strings.Contains(up.UsageString(), "snapshot") {
			t.Errorf("the usage shows a former flag:\n%s", up.UsageString())
		}
	}
}
