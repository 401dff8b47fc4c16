package emulate

import (
	"github.com/rackless/rackless/internal/strictyaml"
)

// MaxProfileSize is in bytes. The built-in profiles have less than 4 KiB.
const MaxProfileSize = 16 << 10

// ParseProfile reads a profile and checks that the machine can be emulated; name is only used in messages. It refuses
// unknown keys, anchors, tags and multiple documents with [strictyaml.Errors].
func ParseProfile(name string, data []byte) (*Profile, error) {
	r := strictyaml.New(&strictyaml.Format{
		Name: "profile", File: "profile", MaxSize: MaxProfileSize, MaxTokens: 4_000, MaxDepth: 8,
		EmptyWant: "a name and NUMA nodes", EmptyFix: `start with "name: my-server"`, LooseText: true,
	}, name)
	p := new(Profile)
	r.Parse(data, p)
	if len(r.Errs) == 0 {
		if f := p.check(); f != nil {
			r.Fail(r.Place(f.path), strictyaml.Error{What: f.what})
		}
	}
	if len(r.Errs) > 0 {
		return nil, r.Errs
	}
	return p, nil
}
