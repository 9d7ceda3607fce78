// openai for Node: `baseURL` is octavo's address with /v1.

import OpenAI from "openai";
import {
  API_KEY, FOLLOW_UP, MODEL, PERSON_QUESTION, PERSON_SCHEMA, QUESTION, TOO_LONG, TOOL_NAME, TOOL_PARAMETERS,
  TOOL_RESULT, URL, check, checkCall, checkPerson, checkRaises, runSteps,
} from "./steps.mjs";

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: API_KEY });
const conversation = [{ role: "user", content: QUESTION }];
const settings = { model: MODEL, max_tokens: 64, temperature: 0 };
const tool = { type: "function", function: { name: TOOL_NAME, parameters: TOOL_PARAMETERS } };

async function ask(messages) {
  const completion = await client.chat.completions.create({ messages, ...settings });
  return completion.choices[0].message.content;
}

await runSteps({
  // A question, and one that follows it.
  async plain() {
    const answer = await ask(conversation);
    const next = [{ role: "assistant", content: answer }, { role: "user", content: FOLLOW_UP }];
    check(await ask([...conversation, ...next]), answer);
  },

  // The same text in pieces, and the usage at the end.
  async streamed() {
    const stream = client.chat.completions.stream({
      messages: conversation, stream_options: { include_usage: true }, ...settings,
    });
    let text = "";
    stream.on("content", (piece) => (text += piece));
    const completion = await stream.finalChatCompletion();
    check(text === (await ask(conversation)), text);
    check(completion.usage.completion_tokens <= 64, completion);
  },

  // The call of a tool, whole and streamed, and an answer that knows the tool's result.
  async tools() {
    const request = { messages: conversation, tools: [tool], ...settings };
    const named = { type: "function", function: { name: TOOL_NAME } };
    const { message } = (await client.chat.completions.create({ ...request, tool_choice: named })).choices[0];
    const [call] = message.tool_calls;
    checkCall(call.function.name, JSON.parse(call.function.arguments));
    const required = { tool_choice: "required", parallel_tool_calls: false };
    const stream = client.chat.completions.stream({ ...request, ...required });
    const [streamed] = (await stream.finalChatCompletion()).choices[0].message.tool_calls;
    checkCall(streamed.function.name, JSON.parse(streamed.function.arguments));
    const result = { role: "tool", tool_call_id: call.id, content: TOOL_RESULT };
    check(await ask([...conversation, message, result]), message);
  },

  // An object that follows a schema.
  async structured() {
    const completion = await client.chat.completions.parse({
      messages: [{ role: "user", content: PERSON_QUESTION }],
      response_format: { type: "json_schema", json_schema: { name: "person", strict: true, schema: PERSON_SCHEMA } },
      ...settings,
    });
    checkPerson(completion.choices[0].message.parsed);
  },

  // A question and one that follows it, streamed, with a tool, as an object that follows a schema.
  async responses() {
    const request = { model: MODEL, max_output_tokens: 64, temperature: 0, input: QUESTION };
    const response = await client.responses.create(request);
    const next = { ...request, input: FOLLOW_UP, previous_response_id: response.id };
    check((await client.responses.create(next)).output_text, response);
    let text = "";
    const stream = client.responses.stream(request).on("response.output_text.delta", (event) => (text += event.delta));
    await stream.finalResponse();
    check(text === response.output_text, text);
    const flat = { type: "function", name: TOOL_NAME, parameters: TOOL_PARAMETERS, strict: true };
    const required = { tools: [flat], tool_choice: "required", parallel_tool_calls: false };
    const [call] = (await client.responses.create({ ...request, ...required })).output;
    checkCall(call.name, JSON.parse(call.arguments));
    const format = { type: "json_schema", name: "person", strict: true, schema: PERSON_SCHEMA };
    const parsed = await client.responses.parse({ ...request, input: PERSON_QUESTION, text: { format } });
    checkPerson(parsed.output_parsed);
  },

  // Refused: the model generates text.
  async embeddings() {
    const error = await checkRaises(OpenAI.APIError, () => client.embeddings.create({ model: MODEL, input: "text" }));
    check([400, 404].includes(error.status) && error.code, error);
  },

  // An unknown model, and a prompt that is too long, whole and streamed.
  async errors() {
    const create = (request) => client.chat.completions.create({ ...settings, ...request });
    const unknown = { model: "unknown", messages: conversation };
    const notFound = await checkRaises(OpenAI.NotFoundError, () => create(unknown));
    check(notFound.code === "model_not_found" && notFound.requestID, notFound);
    for (const stream of [false, true]) {
      const tooLong = { messages: [{ role: "user", content: TOO_LONG }], stream };
      const error = await checkRaises(OpenAI.BadRequestError, () => create(tooLong));
      check(error.code === "context_length_exceeded", error);
    }
  },
});
