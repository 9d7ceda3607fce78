// Steps: what a client's script does one after the other, and how it tells the runner, one JSON line each.

export const URL = process.env.OCTAVO_URL ?? "http://127.0.0.1:8000";
export const MODEL = process.env.OCTAVO_MODEL ?? "octavo";
export const API_KEY = process.env.OCTAVO_API_KEY ?? "none";

export const QUESTION = "What is the weather in Paris?";
export const FOLLOW_UP = "And in Rome?";
export const CITIES = ["Paris", "Rome"];
export const TOO_LONG = "octavo ".repeat(40_000); // tokens, and more than fit into any model that is served here

export const TOOL_NAME = "get_weather";
export const TOOL_RESULT = "18 degrees and sunny";
export const TOOL_PARAMETERS = {
  type: "object",
  properties: { city: { type: "string", enum: CITIES } },
  required: ["city"],
  additionalProperties: false,
};

export const PERSON_QUESTION = "Invent a person.";
export const PERSON_SCHEMA = {
  type: "object",
  properties: { name: { type: "string", maxLength: 20 }, age: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};

export function check(condition, found) {
  if (!condition) throw new Error(`not as expected: ${JSON.stringify(found)}`);
}

// That this is a call of the one tool there is.
export function checkCall(name, call) {
  check(name === TOOL_NAME && Object.keys(call).join() === "city" && CITIES.includes(call.city), { name, call });
}

export function checkPerson(person) {
  check(Object.keys(person).sort().join() === "age,name" && Number.isInteger(person.age), person);
}

// That `act` ends in the client's own error of this kind; returns the error.
export async function checkRaises(kind, act) {
  let answer;
  try {
    answer = await act();
  } catch (error) {
    check(error instanceof kind, `${error}`);
    return error;
  }
  throw new Error(`not refused, but answered: ${JSON.stringify(answer)}`);
}

// Take every step, also those after one that failed. A step raises if the client gets what it should not.
export async function runSteps(steps) {
  console.log(JSON.stringify({ steps: Object.keys(steps) }));
  for (const [name, take] of Object.entries(steps)) {
    let error = null;
    try {
      await take();
    } catch (raised) {
      console.error(raised);
      error = `${raised}`;
    }
    console.log(JSON.stringify({ step: name, error }));
  }
}
