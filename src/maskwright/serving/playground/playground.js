// The playground of `maskwright serve`: one form per task, results of one model or of two side by side.
"use strict";

const byId = (id) => document.getElementById(id);
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const EXAMPLE = "The cat sat on the [MASK] and looked at the rain.";

function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

// --- requests -------------------------------------------------------------------------------------------------------

async function request(path, body) {
  const headers = { "content-type": "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.authorization = `Bearer ${token}`;
  const options = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer.");
  }
  const content = await response.json();
  if (response.status === 401) byId("access").hidden = false;
  if (!response.ok) throw new Error(content.error.message);
  return content;
}

// Return the result of a model for one input as elements, and whether the input was truncated.
const answer = async (path, body, show) => {
  const content = await request(path, body);
  return { parts: show(content.results[0]), truncated: (content.truncated ?? []).length > 0 };
};

// --- results --------------------------------------------------------------------------------------------------------

function table(columns, rows) {
  const head = element("tr", {}, ...columns.map((each) => element("th", { scope: "col", textContent: each })));
  const lines = rows.map((row) => element("tr", {}, ...row.map((cell) =>
    typeof cell === "number"
      ? element("td", { className: "number", textContent: percent(cell) })
      : element("td", {}, cell))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines));
}

const bar = (share) => element("meter", { value: share, ariaLabel: percent(share) });

// Python counts characters as code points, JavaScript as UTF-16 units.
function highlighted(text, spans) {
  const characters = Array.from(text);
  const box = element("div", { className: "text" });
  let end = 0;
  for (const span of spans.filter((each) => each.end > each.start).sort((one, other) => one.start - other.start)) {
    if (span.start < end) continue;
    const marked = element("mark", { title: span.title ?? "", className: span.className ?? "" },
      characters.slice(span.start, span.end).join(""));
    if (span.label) marked.append(element("b", { textContent: span.label }));
    if (span.share !== undefined) marked.style.setProperty("--share", span.share);
    box.append(characters.slice(end, span.start).join(""), marked);
    end = span.end;
  }
  box.append(characters.slice(end).join(""));
  return box;
}

function filled(masks) {
  return masks.flatMap((best, number) => [
    ...(masks.length > 1 ? [element("h3", { textContent: `Mask ${number + 1} of ${masks.length}` })] : []),
    table(["token", "", "score"], best.map((each) => [each.token, bar(each.score), each.score])),
    element("p", { className: "note", textContent: best[0].sequence }),
  ]);
}

function detected(tokens, inputs) {
  const spans = tokens.map((each) => ({
    start: each.start, end: each.end, title: percent(each.probability),
    label: each.replaced ? percent(each.probability) : "",
    share: each.probability,
  }));
  const replaced = tokens.filter((each) => each.replaced).map((each) => each.token);
  return [
    highlighted(inputs.text, spans),
    element("p", { className: "note", textContent:
      replaced.length ? `Probably replaced: ${replaced.join(", ")}` : "No token looks replaced." }),
    element("details", {}, element("summary", { textContent: "All tokens" }),
      table(["token", "", "replaced"], tokens.map((each) => [each.token, bar(each.probability), each.probability]))),
  ];
}

// Show a prediction of `maskwright predict`; its `details` depend on the kind of task.
function predicted({ value, score, details }, inputs) {
  if (details.entities) {
    const spans = details.entities.map((each) => ({ ...each, title: each.score === null ? "" : percent(each.score) }));
    const none = spans.length ? [] : [element("p", { className: "note", textContent: "No entities." })];
    return [highlighted(inputs.text, spans), ...none];
  }
  if (details.words) {
    const rows = value.map((tag, index) => [details.words[index], tag, details.probabilities[index] ?? ""]);
    return [table(["word", "tag", "score"], rows)];
  }
  if (details.answers) {
    const spans = value ? [{ ...details.answers[0], className: "answer" }] : [];
    const title = value || "No answer in the text";
    return [element("h3", { textContent: score === null ? title : `${title} (${percent(score)})` }),
      highlighted(inputs.context, spans)];
  }
  const shares = details.option === undefined
    ? Object.entries(details.probabilities ?? {})
    : lines(inputs.options).map((name, index) => [name, details.probabilities[index]]);
  shares.sort((one, other) => other[1] - one[1]);
  const title = details.option ?? (typeof value === "number" ? value.toPrecision(4) : String(value));
  return [
    element("h3", { textContent: title }),
    ...(shares.length ? [table(["", "", "score"], shares.map(([name, share]) => [name, bar(share), share]))] : []),
  ];
}

const dot = (one, other) => one.reduce((sum, value, index) => sum + value * other[index], 0);

// --- tasks ----------------------------------------------------------------------------------------------------------

// Each task: title of its tab, fields [name, label, example], and a function that returns the results of a model.
const TASKS = {
  "fill-mask": {
    title: "Fill masks",
    fields: [["text", "Text with [MASK]", EXAMPLE]],
    run: (model, inputs) => answer("fill-mask", { model: model.id, texts: [inputs.text] }, filled),
  },
  detect: {
    title: "Replaced words",
    fields: [["text", "Text", "The cat sat on the democracy and looked at the rain."]],
    run: (model, inputs) =>
      answer("detect", { model: model.id, texts: [inputs.text] }, (tokens) => detected(tokens, inputs)),
  },
  embed: {
    title: "Similar sentences",
    fields: [
      ["text", "Sentence", "The harbor was full of ships."],
      ["list", "Sentences to search, one per line",
        "Many vessels lay in the port.\nShe baked bread on Sunday.\nThe boats came home before the storm."],
    ],
    upload: "list",
    run: async (model, inputs) => {
      const sentences = lines(inputs.list);
      const vectors = [];
      let truncated = false;
      for (let start = 0; start < sentences.length + 1; start += 1024) {
        const texts = [inputs.text, ...sentences].slice(start, start + 1024);
        const content = await request("embed", { model: model.id, texts, normalize: true });
        vectors.push(...content.results);
        truncated ||= content.truncated.length > 0;
      }
      const near = sentences.map((text, index) => [dot(vectors[0], vectors[index + 1]), text]);
      near.sort((one, other) => other[0] - one[0]);
      const rows = near.slice(0, 20).map(([cosine, text]) => [cosine.toFixed(3), text]);
      return { parts: [table(["cosine", "sentence"], rows)], truncated };
    },
  },
};

TASKS.rerank = {
  title: "Rank texts",
  fields: [
    ["query", "Query", "Where do ships lie?"],
    ["list", "Texts to rank, one per line", "Many vessels lay in the port.\nShe baked bread on Sunday."],
  ],
  upload: "list",
  run: async (model, inputs) => {
    const documents = lines(inputs.list);
    const content = await request("rerank", { model: model.id, query: inputs.query, documents });
    const rows = content.results.map((each) => [each.relevance_score.toPrecision(3), documents[each.index]]);
    return { parts: [table(["score", "text"], rows.slice(0, 20))], truncated: content.truncated.length > 0 };
  },
};

const KINDS = {
  tagging: { title: "Entities", fields: [["text", "Text", "Ada Lovelace was born in London."]] },
  question_answering: {
    title: "Answers",
    fields: [
      ["question", "Question", "Where was she born?"],
      ["context", "Text with the answer", "Ada Lovelace was born in London and died there."],
    ],
  },
  multiple_choice: {
    title: "Choices",
    fields: [["context", "Text", "The streets are wet."], ["question", "Question", "What happened?"],
      ["options", "Options, one per line", "It rained.\nThe sun shone."]],
  },
  pair: { title: "Classify pairs", fields: [["text", "Text", "A man sleeps."], ["text2", "Second text", "He rests."]] },
  single: { title: "Classify", fields: [["text", "Text", "A wonderful, moving film."]] },
};

function predictTask(model) {
  const kind = KINDS[model.kind] ? model.kind : model.pairs ? "pair" : "single";
  const input = {
    question_answering: (inputs) => ({ question: inputs.question, context: inputs.context }),
    multiple_choice: (inputs) => ({ ...inputs, options: lines(inputs.options) }),
    pair: (inputs) => [inputs.text, inputs.text2],
  }[kind] ?? ((inputs) => inputs.text);
  return {
    ...KINDS[kind],
    run: (chosen, inputs) =>
      answer("predict", { model: chosen.id, inputs: [input(inputs)] }, (prediction) => predicted(prediction, inputs)),
  };
}

// List the tasks of a model as [key, task]; models with equal keys can be shown side by side.
function tasksOf(model) {
  return model.tasks.map((name) => {
    const task = TASKS[name] ?? predictTask(model);
    return [TASKS[name] ? name : task.title, task];
  });
}

// --- the page -------------------------------------------------------------------------------------------------------

let models = [];
let current = null; // [key, task]
const entered = {}; // Input texts by field.

const model = () => models[Number(byId("model").value)];
const other = () => models[Number(byId("other").value || -1)];

const tabId = (key) => `tab-${key.replaceAll(" ", "-")}`;

function showTasks() {
  const tasks = tasksOf(model());
  if (!tasks.some(([key]) => current && key === current[0])) current = tasks[0];
  current = tasks.find(([key]) => key === current[0]);
  byId("tasks").replaceChildren(...tasks.map(([key, task]) => {
    const tab = element("button", { type: "button", role: "tab", id: tabId(key), textContent: task.title });
    tab.setAttribute("aria-controls", "panel");
    tab.setAttribute("aria-selected", String(key === current[0]));
    tab.tabIndex = key === current[0] ? 0 : -1;
    tab.onclick = () => { current = [key, task]; showTasks(); byId(tabId(key)).focus(); };
    return tab;
  }));
  byId("panel").setAttribute("aria-labelledby", tabId(current[0]));
  const compatible = models.map((each, index) => [each, index]).filter(([each]) =>
    each !== model() && tasksOf(each).some(([key]) => key === current[0]));
  const previous = byId("other").value;
  byId("other").replaceChildren(element("option", { value: "", textContent: "none" }),
    ...compatible.map(([each, index]) => element("option", { value: String(index), textContent: each.id })));
  byId("other").value = compatible.some(([, index]) => String(index) === previous) ? previous : "";
  showFields();
}

function showFields() {
  const [key, task] = current;
  byId("fields").replaceChildren(...task.fields.flatMap(([name, label, example]) => {
    const field = `${key}/${name}`;
    const box = element("textarea", { id: `field-${name}`, name, value: entered[field] ?? example });
    if (["question", "query", "text2"].includes(name)) box.className = "short";
    box.oninput = () => { entered[field] = box.value; };
    const parts = [element("label", { htmlFor: box.id, textContent: label }), box];
    if (task.upload === name) {
      const file = element("input", { type: "file", accept: ".txt,text/plain", id: "upload" });
      file.onchange = async () => {
        if (file.files[0]) box.value = entered[field] = await file.files[0].text();
      };
      parts.push(element("label", { htmlFor: "upload", textContent: "or a text file " }), file, element("p"));
    }
    return parts;
  }));
  byId("results").replaceChildren();
  runs += 1;
  byId("run").ariaDisabled = "false";
  showStatus("");
}

function showStatus(text, isError = false) {
  byId("status").textContent = text;
  byId("status").className = isError ? "error" : "";
}

let runs = 0; // A result is shown only if no later request or choice was made.

async function run(event) {
  event.preventDefault();
  if (byId("run").ariaDisabled === "true") return;
  const number = ++runs;
  const [key] = current;
  const inputs = Object.fromEntries(current[1].fields.map(([name]) => [name, byId(`field-${name}`).value]));
  byId("run").ariaDisabled = "true";
  showStatus("running ...");
  try {
    const began = performance.now();
    const articles = await Promise.all([model(), other()].filter(Boolean).map(async (each) => {
      const task = tasksOf(each).find(([name]) => name === key)[1];
      const { parts, truncated } = await task.run(each, inputs);
      const note = truncated ? [element("p", { className: "note", textContent:
        `The text is longer than the ${each.max_length} tokens that this model reads; a part was used.` })] : [];
      return element("article", {}, element("h2", { textContent: each.id }), ...parts, ...note);
    }));
    if (number !== runs) return;
    byId("results").replaceChildren(...articles);
    showStatus(`${Math.round(performance.now() - began)} ms`);
  } catch (error) {
    if (number !== runs) return;
    byId("results").replaceChildren();
    showStatus(error.message, true);
  }
  byId("run").ariaDisabled = "false";
}

async function start() {
  try {
    models = (await request("v1/models")).data;
  } catch (error) {
    showStatus(error.message, true);
    return;
  }
  byId("access").hidden = true;
  byId("model").replaceChildren(...models.map((each, index) =>
    element("option", { value: String(index), textContent: each.id })));
  showStatus("");
  showTasks();
}

byId("question").onsubmit = run;
byId("model").onchange = showTasks;
byId("other").onchange = () => {
  byId("run").ariaDisabled = "false";
  byId("question").requestSubmit();
};
byId("access").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value);
  start();
};
byId("tasks").onkeydown = (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...byId("tasks").children];
  tabs[(tabs.findIndex((each) => each.tabIndex === 0) + step + tabs.length) % tabs.length].click();
};
start();
