/** What was asked and answered on this page. It is kept here and nowhere else. */
import { useEffect, useRef, useState } from "react";
import { Failure } from "../api/failure";
import type { KeyInHand } from "./key";
import { type ChatBody, chatBody, type Message, type Numbers } from "./request";
import { ask, type Piece, type Served, type Usage } from "./stream";

export interface Answer {
  model: string;
  state: "waiting" | "streaming" | "done" | "stopped" | "failed";
  text: string;
  served: Served | null;
  usage: Usage | null;
  finish: string | null;
  failure: Failure | null;
  tenant: string | null; // whose key it was, as the receipt says
  askedAt: number;
  firstMs: number | null; // of the first text, from when it was asked
  lastMs: number | null;
}

interface Turn {
  id: number;
  prompt: string;
  answers: Answer[]; // one for each side
}

export interface Settings {
  models: string[];
  system: string;
  numbers: Numbers;
  stop: string[];
}

export interface Conversation {
  turns: Turn[];
  busy: boolean;
  send: (prompt: string, settings: Settings) => Promise<void>;
  again: (turn: number, side: number, settings: Settings) => Promise<void>;
  stop: () => void;
  clear: () => void;
}

/** What comes within so long is shown at once: drawing each token anew would keep the page from being heard. */
const SHOWN_EACH_MS = 50;

export function useConversation(key: KeyInHand): Conversation {
  const [turns, setTurns] = useState<Turn[]>([]);
  const running = useRef(new Set<AbortController>());
  const lastId = useRef(0); // never one twice: what was stopped is still told of by its own
  const [busy, setBusy] = useState(false);
  const stop = () => {
    for (const each of running.current) {
      each.abort();
    }
  };
  useEffect(() => {
    const all = running.current;
    return () => {
      for (const each of all) {
        each.abort(); // the page is left
      }
    };
  }, []);

  const change = (turn: number, side: number, next: (before: Answer) => Answer) =>
    setTurns((all) =>
      all.map((one) =>
        one.id === turn
          ? { ...one, answers: one.answers.map((each, place) => (place === side ? next(each) : each)) }
          : one,
      ),
    );

  const answer = async (turn: number, side: number, body: ChatBody) => {
    const controller = new AbortController();
    running.current.add(controller);
    setBusy(true);
    change(turn, side, () => waiting(body.model));
    let unshown: Piece[] = [];
    const show = () => {
      const those = unshown;
      unshown = [];
      change(turn, side, (before) => those.reduce(grown, before));
    };
    try {
      const secret = await key.take();
      controller.signal.throwIfAborted();
      let shownAt = 0;
      for await (const piece of ask(body, secret, controller.signal)) {
        unshown.push(piece);
        if (performance.now() - shownAt >= SHOWN_EACH_MS) {
          show();
          await new Promise((go) => setTimeout(go)); // for clicks: pieces that wait leave no turn between them
          shownAt = performance.now();
        }
      }
      show();
      change(turn, side, (before) => ({ ...before, state: "done" }));
    } catch (error) {
      show();
      const stopped = controller.signal.aborted;
      const failure =
        error instanceof Failure ? error : new Failure(0, { detail: "The gateway can't be reached." });
      change(turn, side, (before) =>
        stopped ? { ...before, state: "stopped" } : { ...before, state: "failed", failure },
      );
    } finally {
      running.current.delete(controller);
      setBusy(running.current.size > 0);
    }
  };

  return {
    turns,
    busy,
    stop,
    clear: () => {
      stop();
      setTurns([]);
    },
    send: async (prompt, settings) => {
      lastId.current += 1;
      const id = lastId.current;
      const turn = { id, prompt, answers: settings.models.map(waiting) };
      setTurns([...turns, turn]);
      await Promise.all(
        settings.models.map((model, side) => answer(id, side, bodyOf(settings, model, turns, side, prompt))),
      );
    },
    again: async (turn, side, settings) => {
      const place = turns.findIndex((one) => one.id === turn);
      const asked = turns[place];
      const model = settings.models[side] ?? asked?.answers[side]?.model;
      if (asked !== undefined && model !== undefined) {
        await answer(turn, side, bodyOf(settings, model, turns.slice(0, place), side, asked.prompt));
      }
    },
  };
}

/** Each side goes on from its own answers; a turn that it did not answer is left out of what it is told. */
export function bodyOf(
  settings: Settings,
  model: string,
  before: Turn[],
  side: number,
  prompt: string,
): ChatBody {
  const told = before.flatMap((turn): Message[] => {
    const text = turn.answers[side]?.text ?? "";
    return text === ""
      ? []
      : [
          { role: "user", content: turn.prompt },
          { role: "assistant", content: text },
        ];
  });
  const system: Message[] = settings.system === "" ? [] : [{ role: "system", content: settings.system }];
  const messages: Message[] = [...system, ...told, { role: "user", content: prompt }];
  return chatBody(model, messages, settings.numbers, settings.stop);
}

function waiting(model: string): Answer {
  return {
    model,
    state: "waiting",
    text: "",
    served: null,
    usage: null,
    finish: null,
    failure: null,
    tenant: null,
    askedAt: performance.now(),
    firstMs: null,
    lastMs: null,
  };
}

function grown(before: Answer, piece: Piece): Answer {
  switch (piece.kind) {
    case "served":
      return { ...before, state: "streaming", served: piece.served };
    case "text": {
      const ms = piece.at - before.askedAt;
      return { ...before, text: before.text + piece.text, firstMs: before.firstMs ?? ms, lastMs: ms };
    }
    case "usage":
      return { ...before, usage: piece.usage };
    case "finish":
      return { ...before, finish: piece.reason };
    case "tenant":
      return { ...before, tenant: piece.tenant };
  }
}
