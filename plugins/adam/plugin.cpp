// Adam (Kingma, Ba, "Adam: A method for stochastic optimization", ICLR 2015, arXiv:1412.6980), as torch.optim.Adam defines it: weight
// decay is part of the gradient. The op is AdamW's (plugins/adamw/plugin.cpp has the equations).
#include "galley/cpp/optimizer.hpp"

namespace {

using namespace galley::sdk;

class Adam {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit Adam(const Options& options)
      : betas_(options.numbers("betas")), eps_(options.number("eps")), updated_(options, "adam"), amsgrad_(options.boolean("amsgrad")) {}

  void claim(const GraphReader&, const Claims& claims) const { updated_.claim(claims); }

  void build(UpdateGraph& graph, Trained trained) const {
    StepNode(graph, trained, updated_)
        .state("exp_avg")
        .state("exp_avg_sq", GALLEY_TENSOR_NON_NEGATIVE)
        .state_if(amsgrad_, "max_exp_avg_sq", GALLEY_TENSOR_NON_NEGATIVE)
        .add("adamw_step", Attrs()
                               .f("beta1", betas_[0])
                               .f("beta2", betas_[1])
                               .f("eps", eps_)
                               .f("weight_decay", updated_.decay(graph.info(trained.parameter)))
                               .i("coupled", 1));
  }

 private:
  std::vector<double> betas_;
  double eps_;
  Updated updated_;
  bool amsgrad_;
};

const bool registered = add(strategy<Adam>("adam"));

}  // namespace

GALLEY_PLUGIN("adam", "1.0.0");
