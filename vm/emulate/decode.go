package emulate

import "github.com/rackless/rackless/internal/strictyaml"

// MaxProfileSize bounds the file of a profile, in bytes. The built-in profiles have less than 4 KiB, comments and all.
const MaxProfileSize = 16 << 10

// ParseProfile reads a profile from YAML and checks that such a machine can be made. The file's
// name is only used in messages. Keys that a profile does not have are refused, and so are anchors,
// tags and several documents. The error is a [strictyaml.Errors].
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
