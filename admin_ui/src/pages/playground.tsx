import { Button, Grid, Group, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { CopyButton } from "../parts/copy";
import { useUnsaved } from "../parts/edits";
import { Read } from "../parts/states";
import { AnswerView } from "../playground/answer";
import { Composer } from "../playground/composer";
import { bodyOf, type Settings, useConversation } from "../playground/conversation";
import { useKey } from "../playground/key";
import { KeyNotice } from "../playground/key-notice";
import { ModelField, useModels } from "../playground/model-field";
import { Parameters } from "../playground/parameters";
import { asCurl, asPython, NUMBER_NAMES, type NumberName } from "../playground/request";
import type { PlaygroundSearch } from "../routes/playground";
import { type Tenant, useTenant } from "./tenant-data";
import "../playground/playground.css";

const EXAMPLE = "Write one sentence about an otter.";

export function PlaygroundPage() {
  const tenant = useTenant();
  return tenant.data === undefined ? null : <Playground key={tenant.data.id} tenant={tenant.data} />;
}

function Playground({ tenant }: { tenant: Tenant }) {
  const search = useSearch({ from: "/inside/tenants/$tenant/playground" });
  const navigate = useNavigate({ from: "/tenants/$tenant/playground" });
  const models = useModels(tenant.id);
  const hand = useKey(tenant.id);
  const talk = useConversation(hand);
  const [numbers, setNumbers] = useState(() =>
    Object.fromEntries(NUMBER_NAMES.map((name) => [name, search[name]])),
  );
  const [system, setSystem] = useState("");
  const [stop, setStop] = useState<string[]>([]);
  useUnsaved(talk.turns.length > 0 || system !== "", true); // a newer version of the page waits

  const put = (next: Partial<PlaygroundSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace: true, resetScroll: false });
  const setNumber = (name: NumberName, value: number | undefined) => {
    setNumbers((before) => ({ ...before, [name]: value }));
    put({ [name]: value });
  };

  return (
    <Read of={models} what="the models">
      {(found) => {
        const first =
          search.model ?? found.data.find((model) => model.parent !== null)?.id ?? found.data[0]?.id ?? "";
        const sides = search.beside === undefined ? [first] : [first, search.beside];
        const settings: Settings = { models: sides, system, numbers, stop };
        const failed = talk.turns.at(-1)?.answers.find((answer) => answer?.failure?.param !== undefined);
        const ready = sides.includes("") ? "Choose a model first." : null;
        return (
          <Grid gap="lg">
            <Grid.Col span={{ base: 12, md: 8, lg: 9 }}>
              <Stack gap="md">
                <KeyNotice tenant={tenant} hand={hand} />
                <SimpleGrid cols={{ base: 1, sm: sides.length }}>
                  {sides.map((model, side) => (
                    <Stack key={side === 0 ? "first" : "beside"} gap="xs">
                      <ModelField
                        tenant={tenant.id}
                        label={side === 0 ? "Model" : "Beside it"}
                        models={found.data}
                        value={model}
                        onChange={(value) => put(side === 0 ? { model: value } : { beside: value })}
                      />
                      <Copies settings={settings} model={model} side={side} turns={talk.turns} />
                    </Stack>
                  ))}
                </SimpleGrid>
                <Group gap="xs">
                  <Button
                    variant="default"
                    size="xs"
                    onClick={() => put({ beside: search.beside === undefined ? first : undefined })}
                  >
                    {search.beside === undefined ? "Compare with another" : "One model only"}
                  </Button>
                  {talk.turns.length > 0 && (
                    <Button variant="default" size="xs" onClick={talk.clear}>
                      Begin anew
                    </Button>
                  )}
                </Group>
                <Turns tenant={tenant} talk={talk} settings={settings} />
                <Composer
                  busy={talk.busy}
                  ready={ready}
                  onSend={(prompt) => void talk.send(prompt, settings)}
                  onStop={talk.stop}
                />
              </Stack>
            </Grid.Col>
            <Grid.Col span={{ base: 12, md: 4, lg: 3 }}>
              <Parameters
                numbers={numbers}
                setNumber={setNumber}
                system={system}
                setSystem={setSystem}
                stop={stop}
                setStop={setStop}
                wrong={failed?.failure?.param}
              />
            </Grid.Col>
          </Grid>
        );
      }}
    </Read>
  );
}

interface TurnsProps {
  tenant: Tenant;
  talk: ReturnType<typeof useConversation>;
  settings: Settings;
}

function Turns({ tenant, talk, settings }: TurnsProps) {
  if (talk.turns.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        Nothing is asked yet. What you ask and what is answered stays in this page, and goes with it.
      </Text>
    );
  }
  return (
    <Stack gap="md" role="log" aria-label="Conversation">
      {talk.turns.map((turn) => (
        <Stack key={turn.id} gap="xs">
          <div className="prompt">
            <Title order={2} size="sm" className="off-screen">
              Asked
            </Title>
            {turn.prompt}
          </div>
          <SimpleGrid cols={{ base: 1, sm: turn.answers.length }}>
            {turn.answers.map((answer, side) => (
              <AnswerView
                key={side === 0 ? "first" : "beside"}
                tenant={tenant.id}
                answer={answer}
                onAgain={() => void talk.again(turn.id, side, settings)}
              />
            ))}
          </SimpleGrid>
        </Stack>
      ))}
    </Stack>
  );
}

interface CopiesProps {
  settings: Settings;
  model: string;
  side: number;
  turns: ReturnType<typeof useConversation>["turns"];
}

/** The last question as a program would ask it; before there is one, an example. */
function Copies({ settings, model, side, turns }: CopiesProps) {
  const body = () => bodyOf(settings, model, turns.slice(0, -1), side, turns.at(-1)?.prompt ?? EXAMPLE);
  return (
    <Group gap="xs">
      <CopyButton text={() => asCurl(body())} label="Copy as curl" />
      <CopyButton text={() => asPython(body())} label="Copy as Python" />
    </Group>
  );
}
