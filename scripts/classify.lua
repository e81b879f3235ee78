-- Trains a model to tell texts of several kinds apart: an encoder, such as BERT, RoBERTa, DistilBERT or a sentence model, or a decoder.
--
--   galley data   scripts/classify.lua --set model=DIR --set data=FILE
--   galley train  scripts/classify.lua --set model=DIR --set data=FILE --out runs/classify
--   galley train  scripts/classify.lua --set model=DIR --set data=FILE --set adapter=true --out runs/classify-lora
--   galley train  scripts/classify.lua --set model=DIR --set data=FILE --set pair=text2 --out runs/pairs
--   galley train  scripts/classify.lua --set model=DIR --set data=FILE --set task=regression --set labels=1 --out runs/score
--   galley eval   runs/classify
--   galley predict runs/classify --text "Where is my parcel?"
--
-- DIR holds config.json, model.safetensors and tokenizer.json. FILE has a line { "text": …, "label": … } for each text, or is CSV with these
-- columns; a label is a name, or a number from 0 on. With pair=FIELD a line has two texts, such as a question and an answer. With
-- task=regression a label is any number, and with task=multi-label-classification a list of labels. The classifier is new: its weights
-- begin as random numbers. What is saved, transformers reads as …ForSequenceClassification, and PEFT an adapter as one of task type SEQ_CLS.
--
-- Tokens: a step is 16 rows of at most 128 tokens, one text a row; 3 epochs see each text three times.
-- Bytes: a parameter takes 16: its weight, its gradient and two moments of 4 bytes each. An encoder of 22 M parameters takes 0.35 GB, one of
-- 110 M 1.8 GB. With --set adapter=true, all but the classifier is frozen and takes 4 bytes a parameter.
local adapter, pair, steps, accumulate = arg("adapter", false), arg("pair", ""), arg("steps", 0), arg("accumulate", 1)
local labels = arg("labels", 0)  -- 0: those of the data

return recipe {
  model = model { path = arg("model"), task = arg("task", "sequence-classification"), labels = labels > 0 and labels or nil },
  data  = data.jsonl { files = { arg("data") }, pair = pair ~= "" and pair or nil, validation = 0.1 },
  batch = arg("batch", 16), length = arg("length", 128), steps = steps > 0 and steps or nil,
  epochs = steps == 0 and arg("epochs", 3.0) or nil, seed = 1,
  validate = { every = 50 },
  adapter and use "lora" { rank = arg("rank", 16), alpha = arg("alpha", 32), targets = "attention" },
  accumulate > 1 and use "accumulate" { steps = accumulate },
  use "clip"  { norm = 1.0 },
  use "adamw" { lr = linear { peak = arg("lr", adapter and 5e-4 or 5e-5), warmup = 0.06 }, weight_decay = 0.01 },
}
