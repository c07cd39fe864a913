package framework

// NormalizeDefault scales scores so that the largest becomes MaxScore; reverse then turns them round, so that the
// smallest raw score is best. Where all are 0 they stay so, or become MaxScore with reverse.
func NormalizeDefault(scores []int64, reverse bool) {
	var highest int64
	for _, s := range scores {
		highest = max(highest, s)
	}
	for i, s := range scores {
		if highest > 0 {
			s = s * MaxScore / highest
		}
		if reverse {
			s = MaxScore - s
		}
		scores[i] = s
	}
}

// NormalizeOne is NormalizeDefault of one of several scores, the highest of which is known, and at least 0.
func NormalizeOne(score, highest int64, reverse bool) int64 {
	if highest > 0 {
		score = score * MaxScore / highest
	}
	if reverse {
		score = MaxScore - score
	}
	return score
}
