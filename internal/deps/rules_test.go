package deps

type wing struct {
	name string
	why  string
}

// wings are ordered as in docs/architecture.md. A package may import its own wing and earlier ones.
var wings = []wing{
	{"internal", "what all wings share knows none of them"},
	{"docs", "documents as files, embedded: who prints them knows what they are"},
	{"examples", "profiles as files, embedded: what they mean is the business of vm/emulate"},
	{"machine", "a machine is read and judged for whoever plans, prepares or draws it"},
	{"lab", "the lab file is read by everybody and knows nobody"},
	{"plan", "a plan follows from a machine and a lab alone"},
	{"host", "what is done to a host follows from a plan; who starts machines on it is not its business"},
	{"rdma", "adapters and the switch move frames and messages; whose they are is the business of rack"},
	{"vm", "what makes a machine does not know the lab that it is part of"},
	{"bench", "figures are measured through an interface that runs a command, and shown later"},
	{"rack", "a lab runs and is checked; what is measured in it, and how it is shown, is not its business"},
	{"study", "a study measures labs and analyses what it found; how that looks is the business of report"},
	{"report", "pages show what they are given"},
	{"cmd", "a command is wired up from packages, and never imported"},
}

var upward = map[string]string{}

const (
	whyPure = "pure packages do no I/O and read no clock, so that the same input gives the same bytes: " +
		"take the value as an argument, or as an io.Reader, from the caller"
	whyApart = "search and checker share no code, so that a mistake of one does not hide in the other"
	whyRack  = "one driver of labs knows nothing of another, and package rack knows none of them"
	whyBench = "the runner knows engines and plugins by what they tell it, and no tool"
	whyCmd   = "a command is wired up from packages, and never imported: move what is shared into the package whose " +
		"business it is"
)

func pure() map[string]string {
	return map[string]string{
		"crypto/rand": whyPure, "math/rand": whyPure, "math/rand/v2": whyPure,
		"log": whyPure, "log/slog": whyPure,
		"net": whyPure + " (net/netip is fine)", "net/http": whyPure,
		"os": whyPure, "os/exec": whyPure, "os/signal": whyPure, "os/user": whyPure,
		"golang.org/x/sys/unix": whyPure, "syscall": whyPure,
		"time": whyPure,
	}
}

func with(m map[string]string, path, why string) map[string]string {
	m[path] = why
	return m
}

// seeded allows random numbers with the caller's seed.
func seeded() map[string]string {
	m := pure()
	delete(m, "math/rand/v2")
	return m
}

// timed also allows times that are read elsewhere.
func timed() map[string]string {
	m := seeded()
	delete(m, "time")
	return m
}

// never forbids a package of this module even as an indirect import, others only as a direct one.
var never = map[string]map[string]string{
	"internal/strictyaml":      timed(),
	"internal/trace":           pure(),
	"lab":                      pure(),
	"machine/cmdline":          pure(),
	"machine/diagnose":         pure(),
	"machine/dump/paste":       pure(),
	"machine/finding":          pure(),
	"machine/gpudirect":        pure(),
	"machine/message":          pure(),
	"machine/synthetic":        pure(),
	"machine/topology":         pure(),
	"machine/topology/compare": pure(),
	"plan":                     pure(),
	"plan/advise":              pure(),
	"plan/build":               pure(),
	"plan/conflict":            pure(),
	"plan/render":              pure(),
	"plan/render/export":       pure(),
	"plan/render/openmpi":      pure(),
	"plan/render/slurm":        pure(),
	"plan/rivals":              pure(),
	"plan/variant":             pure(),
	"rdma/roce":                timed(),
	"rdma/simulate":            timed(),
	"study":                    timed(),
	"study/appraise":           pure(),
	"study/importer":           timed(),
	"study/recommend":          pure(),
	"study/record":             timed(),
	"study/stats":              seeded(),
	"plan/search":              with(pure(), "plan/verify", whyApart),
	"plan/verify":              with(pure(), "plan/search", whyApart),
	"bench":                    {"bench/...": whyBench},
	"bench/tool":               {"bench/expect": "a tool is run and read; who judges its figures is not its business"},
	"study/rig":                {"study/store": "a rig measures; who writes it down is not its business"},
	"rack":                     {"vm/libvirt": whyRack, "vm/qemu": whyRack},
	"rack/emulated":            {"vm/libvirt": whyRack, "rack/placed": whyRack, "rack/vcenter": whyRack},
	"rack/placed":              {"rack/emulated": whyRack, "rack/vcenter": whyRack},
	"rack/vcenter":             {"rack/emulated": whyRack, "rack/placed": whyRack},
	"rack/verify":              {"report/...": "what was found is shown later: report reads findings"},
	"rack/adopt":               {"report/...": "what is wrong with a machine is found first and shown later"},
	"rack/doctor":              {"report/...": "what is missing is found first and shown later"},
	"vm/emulate":               {"host": "an emulated host is a machine like others: what is done in it is not asked"},
	"plan/planner":             {"rack": "what runs is not asked", "plan/render": "a plan is written later"},
	"report/ui":                {"host": "the pages show, and change nothing"},
	"study/measure":            {"study/rig": "a study measures by its own design: this measures a lab once"},
}

// testOnly are imports for tests: package testing registers flags.
var testOnly = map[string]string{
	"testing/...":                                    "the testing package is for tests",
	"github.com/google/go-cmp/...":                   "it panics on what it does not know: it is for tests",
	"github.com/rogpeppe/go-internal/testscript/...": "it is for tests",
	"pgregory.net/rapid/...":                         "its licence, MPL-2.0, is accepted for tests only",
	"github.com/santhosh-tekuri/jsonschema/v6/...": "lab checks its input itself, with lines and columns; this one " +
		"judges the schema in tests",
	"github.com/invopop/jsonschema/...": "the schemas are files: it makes them in tests",
}

// noName names describe nothing, so that such packages collect everything.
var noName = []string{"base", "common", "helper", "helpers", "lib", "misc", "shared", "types", "util", "utils"}
