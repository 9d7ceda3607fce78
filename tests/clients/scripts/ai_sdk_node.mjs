// The AI SDK: `createOpenAICompatible({ baseURL })` is octavo's address with /v1, and so for its two other providers.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, embed, generateText, jsonSchema, streamText, tool } from "ai";
import {
  API_KEY, FOLLOW_UP, MODEL, PERSON_QUESTION, PERSON_SCHEMA, QUESTION, TOO_LONG, TOOL_NAME, TOOL_PARAMETERS,
  TOOL_RESULT, URL, check, checkCall, checkPerson, checkRaises, runSteps,
} from "./steps.mjs";

const place = { baseURL: `${URL}/v1`, apiKey: API_KEY };
const octavo = createOpenAICompatible({
  name: "octavo", ...place, includeUsage: true, supportsStructuredOutputs: true,
});
const settings = { model: octavo(MODEL), maxOutputTokens: 64, temperature: 0, maxRetries: 0 };
const weather = { [TOOL_NAME]: tool({ inputSchema: jsonSchema(TOOL_PARAMETERS), execute: async () => TOOL_RESULT }) };

// The text of a stream. The SDK gives errors to a callback, unless they are looked for.
async function streamedText(request) {
  const result = streamText({ ...settings, prompt: QUESTION, onError() {}, ...request });
  let text = "";
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") text += part.text;
    if (part.type === "error") throw part.error;
  }
  return text;
}

await runSteps({
  // A question, and one that follows it.
  async plain() {
    const messages = [{ role: "user", content: QUESTION }];
    const { text, usage } = await generateText({ ...settings, messages });
    check(usage.outputTokens <= 64, usage);
    const next = [{ role: "assistant", content: text }, { role: "user", content: FOLLOW_UP }];
    check((await generateText({ ...settings, messages: [...messages, ...next] })).text, text);
  },

  // The same text in pieces.
  async streamed() {
    const text = await streamedText({});
    check(text === (await generateText({ ...settings, prompt: QUESTION })).text, text);
  },

  // The call of a tool, whole and streamed; the SDK runs the tool.
  async tools() {
    const request = { ...settings, prompt: QUESTION, tools: weather };
    const named = await generateText({ ...request, toolChoice: { type: "tool", toolName: TOOL_NAME } });
    checkCall(named.toolCalls[0].toolName, named.toolCalls[0].input);
    check(named.toolResults[0].output === TOOL_RESULT, named.toolResults);
    const [streamed] = await streamText({ ...request, toolChoice: "required" }).toolCalls;
    checkCall(streamed.toolName, streamed.input);
  },

  // An object that follows a schema.
  async structured() {
    const output = Output.object({ schema: jsonSchema(PERSON_SCHEMA) });
    checkPerson((await generateText({ ...settings, prompt: PERSON_QUESTION, output })).output);
  },

  // A question by OpenAI's newer API, whole and streamed.
  async responses() {
    const model = createOpenAI(place).responses(MODEL);
    const { text } = await generateText({ ...settings, model, prompt: QUESTION });
    check(text === (await streamedText({ model })), text);
  },

  // A question by Anthropic's API, whole and streamed.
  async messages() {
    const model = createAnthropic(place)(MODEL);
    const { text } = await generateText({ ...settings, model, prompt: QUESTION });
    check(text === (await streamedText({ model })), text);
  },

  // Refused: the model generates text.
  async embeddings() {
    const request = { model: octavo.embeddingModel(MODEL), value: "text", maxRetries: 0 };
    const error = await checkRaises(APICallError, () => embed(request));
    check([400, 404].includes(error.statusCode) && error.data.error.code, error);
  },

  // An unknown model, and a prompt that is too long, whole and streamed.
  async errors() {
    const unknown = { ...settings, model: octavo("unknown"), prompt: QUESTION };
    const notFound = await checkRaises(APICallError, () => generateText(unknown));
    check(notFound.statusCode === 404 && notFound.data.error.code === "model_not_found", notFound);
    for (const ask of [generateText, streamedText]) {
      const error = await checkRaises(APICallError, () => ask({ ...settings, prompt: TOO_LONG }));
      check(error.statusCode === 400 && error.data.error.code === "context_length_exceeded", error);
    }
  },
});
