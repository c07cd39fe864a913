package replay

import (
	"fmt"
	"strings"
	"time"

	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
)

// shownPods are how many pods of one step are described.
const shownPods = 5

// describe says in lines what a step was.
func (p *player) describe(e *recordv1.Entry) []string {
	at := time.Unix(0, e.GetTime()).UTC().Format("15:04:05.000000 ")
	switch step := e.GetStep().(type) {
	case *recordv1.Entry_Attempt:
		lines := p.attemptLines(step.Attempt)
		for i := range lines {
			lines[i] = at + lines[i]
		}
		return lines
	case *recordv1.Entry_Change:
		what := "changed"
		if step.Change.GetGone() {
			what = "is gone"
		}
		name := "an object"
		if o, err := decode(step.Change); err == nil {
			name = keyOf(o)
		}
		return []string{at + name + " " + what}
	case *recordv1.Entry_Idle:
		return []string{at + "nothing was ready"}
	case *recordv1.Entry_Ended:
		how := "succeeded"
		if st := step.Ended.GetStatus(); st != nil {
			how = "failed: " + strings.Join(st.GetReasons(), ", ")
		}
		return []string{fmt.Sprintf("%swhat was begun for %s %s", at, p.nameOf(step.Ended.GetOf()), how)}
	case *recordv1.Entry_Tick:
		return []string{at + "time moved what waited"}
	case *recordv1.Entry_Released:
		return []string{at + p.nameOf(step.Released.GetPod()) + " waits at Permit no more"}
	}
	return []string{"nothing happened"}
}

func (p *player) attemptLines(a *recordv1.Attempt) []string {
	who := a.GetGroup()
	if who != "" {
		who = "pod group " + who
	} else if len(a.GetPods()) > 0 {
		who = p.nameOf(a.GetPods()[0])
	}
	who = fmt.Sprintf("attempt %d at %s: ", a.GetNumber(), who)
	if a.GetError() != "" {
		return []string{who + "error: " + a.GetError()}
	}
	var lines []string
	for _, x := range a.GetPlaced() {
		lines = append(lines, who+p.nameOf(x.GetPod())+" → "+x.GetNode())
	}
	for _, x := range a.GetFailed() {
		line := who + p.nameOf(x.GetPod()) + " nowhere: " + x.GetMessage()
		if x.GetNominatedNode() != "" {
			line += fmt.Sprintf("; room is made on %s", x.GetNominatedNode())
		}
		for _, v := range x.GetVictims() {
			line += ", preempting " + p.nameOf(v)
		}
		lines = append(lines, line)
	}
	if r := a.GetRefusal(); r != nil {
		lines = append(lines, who+"refused: "+strings.Join(r.GetReasons(), ", "))
	}
	if len(lines) > shownPods {
		lines = append(lines[:shownPods], fmt.Sprintf("%s… %d more pods", who, len(lines)-shownPods))
	}
	return lines
}

// difference says where a replay went another way than the record.
func (p *player) difference(n int, offset int64, e *recordv1.Entry, recent []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "entry %d, at byte %d, came out otherwise\n", n, offset)
	for _, line := range recent {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	for _, line := range p.describe(e) {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	for _, line := range p.describe(p.made) {
		fmt.Fprintf(&b, "+ %s\n", line)
	}
	return b.String()
}
