// A session by means of a client that was generated from the OpenAPI document: compiled strictly,
// so that it fails where the document does not say what is used here. Prints what it came to.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Session = components["schemas"]["Session"];
type Request = components["schemas"]["Request"];

const [baseUrl = "", token = ""] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

async function session(): Promise<Session> {
  const { data, error } = await client.POST("/v1/sessions", { body: { title: "generated" } });
  if (!data) throw new Error(error?.detail ?? "no session");
  return data;
}

async function prompt(sessionId: string, text: string): Promise<components["schemas"]["Turn"]> {
  const { data, error } = await client.POST("/v1/sessions/{sessionId}/prompt", {
    params: { path: { sessionId }, header: { Prefer: "wait=20" } },
    body: { prompt: text },
  });
  if (!data || typeof data === "string") throw new Error(error?.detail ?? "no turn");
  return data;
}

async function reply(request: Request): Promise<Request> {
  const { sessionId, requestId } = request;
  const { data, error } = await client.POST(
    "/v1/sessions/{sessionId}/requests/{requestId}/reply",
    {
      params: { path: { sessionId, requestId } },
      body: { outcome: "selected", kind: "allow_once" },
    },
  );
  if (!data) throw new Error(error?.detail ?? "no answer");
  return data;
}

async function refused(sessionId: string): Promise<string> {
  const { error } = await client.PUT("/v1/sessions/{sessionId}/mode", {
    params: { path: { sessionId } },
    body: { modeId: "nothing" },
  });
  return error?.code ?? "nothing";
}

const made = await session();
const sessionId = made.sessionId;
const waiting = await prompt(sessionId, "tool");
const listed = await client.GET("/v1/sessions/{sessionId}/requests", {
  params: { path: { sessionId } },
});
const request = listed.data?.requests[0];
const answered = request ? await reply(request) : undefined;
const turn = await client.GET("/v1/sessions/{sessionId}/turns/{turnId}", {
  params: { path: { sessionId, turnId: waiting.turnId }, header: { Prefer: "wait=20" } },
});
const page = await client.GET("/v1/sessions/{sessionId}/events", {
  params: { path: { sessionId }, query: { limit: 1000, format: "json" } },
});
const events = page.data && typeof page.data !== "string" ? page.data.events : [];
const deleted = await client.DELETE("/v1/sessions/{sessionId}", {
  params: { path: { sessionId } },
});

console.log(
  JSON.stringify({
    status: made.status,
    waiting: waiting.status,
    answered: answered?.status,
    resolution: answered?.resolution?.by,
    turn: turn.data?.status,
    outcome: turn.data?.outcome,
    events: events.map((event) => event.type),
    refused: await refused(sessionId),
    deleted: deleted.response.status,
  }),
);
