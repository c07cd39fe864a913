package quota

import (
	"trireme.dev/client/quantity"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// OfQueues is the tree of these queues. A quantity that cannot be read, which the gateway does not let happen, counts as absent.
func OfQueues(queues []*schedulingv1.Queue) *Tree {
	shares := make([]Share, len(queues))
	for i, q := range queues {
		spec := q.GetSpec()
		shares[i] = Share{
			Name: q.GetMetadata().GetName(), Parent: spec.GetParent(), Weight: int64(spec.GetWeight()), Paused: spec.GetPaused(),
			Guaranteed: amounts(spec.GetGuaranteed()), Limit: amounts(spec.GetLimit()), Lending: amounts(spec.GetLending()),
		}
	}
	return New(shares)
}

func amounts(list map[string]string) Amounts {
	out := make(Amounts, len(list))
	for name, s := range list {
		q, err := quantity.Parse(s)
		switch {
		case err != nil:
		case name == "cpu":
			out[name] = q.MilliValue()
		default:
			out[name] = q.Value()
		}
	}
	return out
}
