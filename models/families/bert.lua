-- Encoders: BERT, Devlin, Chang, Lee, Toutanova, arXiv:1810.04805; RoBERTa, Liu et al., arXiv:1907.11692; DistilBERT, Sanh et al.,
-- arXiv:1910.01108. Parameters as transformers names them.
local lib, layers = require "config", require "layers"

-- What the three call things. `%d`: the number of the block.
local kinds = {
  bert = {
    prefix = "bert.", block = "encoder.layer.%d.", query = "attention.self.query", key = "attention.self.key",
    value = "attention.self.value", out = "attention.output.dense", out_norm = "attention.output.LayerNorm", up = "intermediate.dense",
    down = "output.dense", down_norm = "output.LayerNorm", transform = "cls.predictions.transform.dense",
    transform_norm = "cls.predictions.transform.LayerNorm", decoder = "cls.predictions.decoder", decoder_bias = "cls.predictions.bias",
    types = true, pooler = "pooler.dense",
  },
  roberta = {
    prefix = "roberta.", transform = "lm_head.dense", transform_norm = "lm_head.layer_norm", decoder = "lm_head.decoder",
    decoder_bias = "lm_head.bias", types = true, classify = "classifier.dense", classifier = "classifier.out_proj", dropped = true,
    vocabulary = 50265, padding = 1, head_act = { "gelu", { approximate = "none" } },   -- the head's, whatever the layers have
  },
  distilbert = {
    prefix = "distilbert.", block = "transformer.layer.%d.", query = "attention.q_lin", key = "attention.k_lin", value = "attention.v_lin",
    out = "attention.out_lin", out_norm = "sa_layer_norm", up = "ffn.lin1", down = "ffn.lin2", down_norm = "output_layer_norm",
    transform = "vocab_transform", transform_norm = "vocab_layer_norm", decoder = "vocab_projector", decoder_bias = "vocab_projector.bias",
    classify = "pre_classifier",
  },
}
setmetatable(kinds.roberta, { __index = kinds.bert })
kinds.roberta.pooler = false

-- The keys of config.json that they do not share.
local function numbers_of(config, kind)
  local n = { eps = 1e-12 }
  if kind == "distilbert" then
    lib.renamed(config, { { "hidden_size", "dim" }, { "num_attention_heads", "n_heads" }, { "num_hidden_layers", "n_layers" } })
    n.C, n.F = lib.integer(config, "dim", 768), lib.integer(config, "hidden_dim", 3072)
    n.layers, n.heads = lib.integer(config, "n_layers", 6), lib.integer(config, "n_heads", 12)
    n.p, n.attn_p = lib.share(config, "dropout", 0.1), lib.share(config, "attention_dropout", 0.1)
    n.head_p = lib.share(config, "seq_classif_dropout", 0.2)
    n.act, n.act_attrs = lib.activation(config, "activation", "gelu")
    -- Files have the numbers of such tables, and they are trained in neither program; here they would be.
    if lib.boolean(config, "sinusoidal_pos_embds", false) then error("config: 'sinusoidal_pos_embds' = true is not supported", 0) end
    return n
  end
  n.C, n.F = lib.integer(config, "hidden_size", 768), lib.integer(config, "intermediate_size", 3072)
  n.layers, n.heads = lib.integer(config, "num_hidden_layers", 12), lib.integer(config, "num_attention_heads", 12)
  n.p, n.attn_p = lib.share(config, "hidden_dropout_prob", 0.1), lib.share(config, "attention_probs_dropout_prob", 0.1)
  n.eps, n.act, n.act_attrs = lib.number(config, "layer_norm_eps", 1e-12), lib.activation(config, "hidden_act", "gelu")
  n.types = lib.integer(config, "type_vocab_size", 2)
  n.head_p = config.classifier_dropout ~= nil and lib.share(config, "classifier_dropout") or n.p
  lib.must_be(config, "is_decoder", false, "as a decoder it would be another model")
  lib.must_be(config, "add_cross_attention", false, "there is no encoder to attend to")
  lib.must_be(config, "position_embedding_type", "absolute", "only absolute positions are supported")
  return n
end

-- The first files call the weights and biases of norms by Greek letters.
local function old(name)
  local out = name:gsub("LayerNorm%.weight$", "LayerNorm.gamma"):gsub("LayerNorm%.bias$", "LayerNorm.beta")
  return out ~= name and out or nil
end

local function build(config, g)
  local kind = config.model_type
  local names, n = kinds[kind], numbers_of(config, kind)
  local C, F = n.C, n.F
  local vocabulary = lib.integer(config, "vocab_size", names.vocabulary or 30522)
  local positions, padding = lib.integer(config, "max_position_embeddings", 512), lib.padding(config, vocabulary, names.padding or 0)
  local std, tied = lib.number(config, "initializer_range", 0.02), lib.boolean(config, "tie_word_embeddings", true)
  if C % n.heads ~= 0 then error(("config: a width of %d does not divide by %d heads"):format(C, n.heads), 0) end
  -- RoBERTa counts positions from the one after that of padding.
  local skipped = 0
  if kind == "roberta" then
    config.pad_token_id = config.pad_token_id or names.padding
    skipped = config.pad_token_id + 1
  end
  lib.check_length(g, positions - skipped, "max_position_embeddings")

  local alone = g.task == "feature-extraction"
  local function others(name)
    local out, first = { alone and names.prefix .. name or name }, old(name)
    if first then out[2], out[3] = names.prefix .. first, first end
    return out
  end
  local L = layers.new(g, { prefix = alone and "" or names.prefix, std = std, aliases = others })
  local H = layers.new(g, { std = std, aliases = function(name) return { old(name) } end })   -- heads
  -- Buffers, and the heads of other tasks.
  for _, other in ipairs { "*position_ids", "*token_type_ids", "cls.*", "lm_head.*", "vocab_transform.*", "vocab_layer_norm.*",
    "vocab_projector.*", "classifier.*", "pre_classifier.*", "qa_outputs.*" } do g:ignore(other) end

  local decoder = names.decoder .. ".weight"
  local x, words = L.embedding(g:input { name = "input_ids", below = vocabulary }, "embeddings.word_embeddings", vocabulary, C,
    lib.tied_to(decoder, tied, padding))
  local ids = g:input("position_ids")
  if skipped > 0 then ids = g:node("shift", "positions", { ids }, { by = skipped }) end
  if names.types then
    x = L.add(x, L.embedding(g:input { name = "token_type_ids", below = n.types }, "embeddings.token_type_embeddings", n.types, C),
      "embeddings.types")
  end
  x = L.add(x, L.embedding(ids, "embeddings.position_embeddings", positions, C), "embeddings.positions")
  x = L.dropout(L.layer_norm(x, "embeddings.LayerNorm", C, n.eps), n.p, "embeddings.dropout")
  for i = 0, n.layers - 1 do
    local at = names.block:format(i)
    local function linear(y, name, n_in, n_out) return L.linear(y, at .. name, n_in, n_out, { bias = true }) end
    g:block(i)
    g:mark_block_input(x)
    local q, k, v = linear(x, names.query, C, C), linear(x, names.key, C, C), linear(x, names.value, C, C)
    local a = L.attention(at .. "attention", { q = q, k = k, v = v, first = g:input("first_key"), last = g:input("last_key") },
      { heads = n.heads, kv_heads = n.heads, head_dim = C // n.heads, causal = 0, dropout = n.attn_p })
    a = linear(a, names.out, C, C)
    if kind ~= "distilbert" then a = L.dropout(a, n.p, at .. "attention.dropout") end
    x = L.layer_norm(L.add(x, a, at .. "residual_attention"), at .. names.out_norm, C, n.eps)
    local m = g:node(n.act, L.at(at .. "act"), { linear(x, names.up, C, F) }, n.act_attrs)
    m = L.dropout(linear(m, names.down, F, C), n.p, at .. "dropout")
    x = L.layer_norm(L.add(x, m, at .. "residual_mlp"), at .. names.down_norm, C, n.eps)
  end
  g:block(-1)
  g:mark_block_input(x)
  g:mark_output(x)

  if alone or not names.pooler or g.task == "masked-lm" or g.task == "token-classification" then
    g:ignore("*pooler.*")
  end
  if alone then
    g:mark_hidden(x)
  elseif g.task == "masked-lm" then
    g:mark_hidden(x)
    local fresh = { bias = true, fresh = true, whole = true }
    x = H.linear(x, names.transform, C, C, fresh)
    local act = names.head_act or { n.act, n.act_attrs }
    x = g:node(act[1], names.transform .. ".act", { x }, act[2])
    x = H.layer_norm(x, names.transform_norm, C, kind == "distilbert" and 1e-12 or n.eps, fresh)
    -- transformers has the bias twice. Tied they are one; in a head of its own the decoder's counts, and nobody reads the other one.
    local bias_of, other = names.decoder_bias, names.decoder .. ".bias"
    if not tied then bias_of, other = other, bias_of end
    local both = not tied and g:has(bias_of)
    if both and other ~= bias_of then g:ignore(other) end
    local bias = g:parameter { name = bias_of, aliases = { not both and other or nil }, shape = { vocabulary }, decay = false,
      init = { "fill", value = 0.0 }, fresh = true }
    local head = tied and words or H.weight(names.decoder, vocabulary, C, { hint = lib.untied_hint, fresh = true })
    local logits = g:node("linear", names.decoder, { x, head, bias }, { transposed = 0 })
    g:mark_logits(logits)
    g:loss("cross_entropy", "loss", { logits, g:input("labels") })
  elseif g.task == "token-classification" then
    g:mark_hidden(x)
    lib.classify(g, H, H.dropout(x, n.head_p, "dropout"), C, "classifier")
  else
    x = g:node("take_rows", "first", { x, false }, { position = 0 })
    if names.pooler then
      x = L.linear(x, names.pooler, C, C, { bias = true, fresh = true })
      x = g:node("tanh", L.at("pooler.act"), { x })
    end
    if names.dropped then x = H.dropout(x, n.head_p, "classifier.dropout_in", 1) end
    if names.classify then
      x = H.linear(x, names.classify, C, C, { bias = true, fresh = true })
      x = g:node(kind == "distilbert" and "relu" or "tanh", names.classify .. ".act", { x })
    end
    g:mark_hidden(x)
    lib.classify(g, H, H.dropout(x, n.head_p, "dropout", 1), C, names.classifier or "classifier")
  end
end

local function class(suffix)
  return { bert = "Bert" .. suffix, roberta = "Roberta" .. suffix, distilbert = "DistilBert" .. suffix }
end

return {
  model_types = { "bert", "roberta", "distilbert" },
  tasks = {
    { name = "masked-lm", labels = "masked_tokens", architecture = class "ForMaskedLM" },
    { name = "token-classification", labels = "token_labels", architecture = class "ForTokenClassification" },
    { name = "feature-extraction", architecture = class "Model" },
    lib.row_tasks(class "ForSequenceClassification"),
  },
  harmless = { "qa_dropout", "gradient_checkpointing", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "seq_classif_dropout", "position_embedding_type",
    "classifier_dropout", "tie_weights_",
    "sbert_ce_default_activation_function", "sentence_transformers" },  -- what sentence-transformers makes of a cross-encoder's logits
  counts_tokens = { "roberta" },
  gguf = require "gguf.bert",
  build = build,
}
