package conduct

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
)

// An Array is a job array of Slurm that makes the runs of a study, a part in each task.
type Array struct {
	Name    string // of the study
	Study   string // absolute path of its file
	Dir     string // absolute path of the directory of parts
	Program string // absolute path of rackless
	Tasks   int
	Blocks  int // limit; 0 means all
}

// Text returns the script for sbatch. A task leaves its part only when it is complete, and works on a disk of its node:
// SQLite cannot be relied on over NFS.
func (a Array) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/bash\n#SBATCH --job-name=rackless-%s\n#SBATCH --array=1-%d\n#SBATCH --ntasks=1\n"+
		"#SBATCH --cpus-per-task=1\n", a.Name, a.Tasks)
	// Slurm takes the path as it is, up to the end of the line, and replaces %a.
	fmt.Fprintf(&b, "#SBATCH --output=\"%s/%%a.log\"\n", strings.ReplaceAll(a.Dir, "%", "%%"))
	fmt.Fprintf(&b, "# Each task makes a part of study %s: its runs are the same wherever they are made.\n", a.Name)
	b.WriteString("set -euo pipefail\n")
	fmt.Fprintf(&b, "dir=%s\n", words.Quote(a.Dir))
	b.WriteString("task=$SLURM_ARRAY_TASK_ID\necho \"task $task on $(hostname)\"\n" +
		"work=$(mktemp -d)\ntrap 'rm -rf \"$work\"' EXIT\n")
	limit := ""
	if a.Blocks > 0 {
		limit = fmt.Sprintf(" --blocks %d", a.Blocks)
	}
	fmt.Fprintf(&b, "rackless=%s\n", words.Quote(a.Program))
	fmt.Fprintf(&b, "\"${RACKLESS:-$rackless}\" study run %s --part \"$task/%d\"%s --db \"$work/part.db\"\n",
		words.Quote(a.Study), a.Tasks, limit)
	b.WriteString("cp \"$work/part.db\" \"$dir/.$task.db\"\nmv \"$dir/.$task.db\" \"$dir/$task.db\"\n")
	return b.String()
}
