// The head in chunks of rows.
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class HeadChunks : public Hand {
 protected:
  HeadChunks() {
    x = input("x", {6, 2});
    w = tensor("w", {6, 2}, GALLEY_KIND_PARAMETER);
    hidden = node("hidden", "mul", {x, w});
    const galley_tensor logits = node("logits", "add", {hidden, hidden});
    node("l", "loss", {logits}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
    graph.marks.hidden = hidden;
    graph.marks.logits = logits;
    train({w});
  }
  Status run(int64_t rows) {
    options.head_rows = rows;
    options.purpose = Purpose::Gradients;
    TRY_STATUS(differentiate(*c));
    TRY_STATUS(verify("differentiate"));
    return order(*c);
  }
  galley_tensor x, w, hidden;
};

TEST_F(HeadChunks, OneChunk) {
  ASSERT_TRUE(run(6).ok());
  EXPECT_EQ(c->orders.forward.size(), 1u);
  EXPECT_TRUE(c->orders.own.empty());
  for (const Item& item : c->orders.head)
    for (const Ref& r : item.inputs) EXPECT_EQ(r.rows, -1);
}

TEST_F(HeadChunks, ChunksAreEvenAndCoverAllRows) {
  ASSERT_TRUE(run(4).ok());  // 6 rows in chunks of at most 4: 3 and 3
  std::vector<int64_t> rows;
  for (const Item& item : c->orders.head)
    if (item.node->name == "logits") rows.push_back(item.inputs[0].row);
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 3}));
  const Tensors tensors = c->tensors();
  for (const Item& item : c->orders.head)
    EXPECT_TRUE(item.node->name != "logits" || tensors[item.outputs[0].tensor].shape == (Shape{3, 2}));
}

TEST_F(HeadChunks, LaterChunksAddToWhatTheFirstHasWritten) {
  ASSERT_TRUE(run(2).ok());
  std::vector<bool> adds;
  for (const Item& item : c->orders.head)
    if (item.node->op->flags & GALLEY_OP_LOSS) adds.push_back(chosen(item.accumulate, 0));
  EXPECT_EQ(adds, (std::vector<bool>{false, true, true}));
}

TEST_F(HeadChunks, TheGraphStaysAsItIs) {
  ASSERT_TRUE(differentiate(*c).ok());
  options.head_rows = 2;
  const size_t tensors = graph.tensor_count(), nodes = graph.node_count();
  ASSERT_TRUE(order(*c).ok());
  EXPECT_EQ(graph.tensor_count(), tensors);
  EXPECT_EQ(graph.node_count(), nodes);
  EXPECT_FALSE(c->orders.own.empty());
}

TEST_F(HeadChunks, WithoutAHeadThereIsNothingToSampleFrom) {
  options.purpose = Purpose::Sample;
  graph.marks.hidden = 0;
  EXPECT_EQ(cause(sample(*c)), "this model marks no head to sample from");
}

}  // namespace
}  // namespace galley::hand
