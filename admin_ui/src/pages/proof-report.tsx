import { Alert, Badge, Card, Group, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";
import type { Schemas } from "../api/client";
import { Bytes, Count, Moment, Mono, numberText } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";
import { Passed } from "../parts/states";
import { fixOf } from "../uploading/fixes";
import { Refusals } from "../uploading/refusals";
import { ModuleTable } from "./proof-modules";
import { percentText } from "./rollout-words";
import { Row } from "./tenant-overview";

type Proof = Schemas["ProofOut"];
type Weights = Schemas["WeightsProof"];
type Facts = Schemas["Facts"];

/** The verdict on a version, and what replicas found of it. */
export function ProofReport({ proof, again }: { proof: Proof; again: ReactNode }) {
  return (
    <Stack component="section" aria-label="Proof report">
      <Group justify="space-between">
        <Title order={2} size="h4">
          Proof report
        </Title>
        {again}
      </Group>
      <Verdict proof={proof} />
      {proof.waiting.map((waiting) => (
        <Waiting key={waiting.base_digest ?? "any"} waiting={waiting} />
      ))}
      {proof.proofs.map((weights) => (
        <OnWeights key={weights.base_digest} weights={weights} acceptance={proof.acceptance} />
      ))}
    </Stack>
  );
}

/** What its files say by themselves. */
export function ProofFacts({ proof }: { proof: Proof }) {
  if (proof.facts === null) {
    return (
      <Text size="sm" c="dimmed">
        It is older than reports: prove it again to have one.
      </Text>
    );
  }
  return <FactsCards facts={proof.facts} base={proof.base} />;
}

function Verdict({ proof }: { proof: Proof }) {
  if (proof.state === "rejected") {
    return <Rejected proof={proof} />;
  }
  if (proof.state === "ready") {
    return (
      <Passed title="It passed, and may serve">
        Ready since <Moment at={proof.ready_at} absent="it was uploaded, before there were proofs" />.
      </Passed>
    );
  }
  return (
    <Alert color="blue" role="status" classNames={{ title: "plain" }} title="It is not proved yet">
      A replica loads it, compares it with the base and its dense form, and asks its acceptance prompts.
    </Alert>
  );
}

/** Reason, field, found, allowed, fix: of the check that failed. */
function Rejected({ proof }: { proof: Proof }) {
  const failed = proof.proofs.find((weights) => !weights.passed);
  const check = failed?.checks.find(({ passed }) => !passed);
  const name = proof.reason?.split(":")[0] ?? "";
  const said = proof.reason?.slice(name.length + 2) || (proof.reason ?? "no reason was given");
  const asked = failed?.acceptance ?? null;
  const found =
    check?.figure != null
      ? `${numberText(check.figure)}: ${said}`
      : name === "acceptance" && asked !== null
        ? `${percentText(asked.share)} of ${asked.num_prompts} prompts answered as asked`
        : said;
  const allowed =
    check?.bound != null
      ? numberText(check.bound)
      : name === "acceptance" && asked !== null
        ? `at least ${percentText(asked.minimum_share)}`
        : "that the check passes";
  return (
    <Refusals
      title={`Rejected: ${said}`}
      refusals={[{ place: name || "proof", found, allowed, fix: fixOf(name) }]}
    />
  );
}

function Waiting({ waiting }: { waiting: Proof["waiting"][number] }) {
  return (
    <Alert
      color="blue"
      classNames={{ title: "plain" }}
      role="status"
      title={waiting.running ? "A replica is at it" : "It waits for a replica"}
    >
      {waiting.tries > 0 && (
        <Text size="sm">
          Tried <Count value={waiting.tries} unit={waiting.tries === 1 ? "time" : "times"} /> without a
          verdict
          {waiting.reason === null ? "" : `, at last: ${waiting.reason}`}. Again from{" "}
          <Moment at={waiting.not_before} /> on.
        </Text>
      )}
    </Alert>
  );
}

interface OnWeightsProps {
  weights: Weights;
  acceptance: Proof["acceptance"];
}

function OnWeights({ weights, acceptance }: OnWeightsProps) {
  return (
    <Card withBorder>
      <Group justify="space-between" mb="xs">
        <Title order={3} size="h4">
          What a replica found
        </Title>
        <Badge color={weights.passed ? "teal" : "red"}>{weights.passed ? "passed" : "did not pass"}</Badge>
      </Group>
      <Text size="sm" c="dimmed" mb="sm">
        <Moment at={weights.proved_at} />, on weights <Mono>{weights.base_digest.slice(0, 16)}</Mono>, loaded
        {weights.tier === "" ? "" : ` from ${weights.tier}`} in{" "}
        <span className="figures">{numberText(weights.load_ms)}&nbsp;ms</span>, in all{" "}
        <span className="figures">{numberText(weights.total_ms)}&nbsp;ms</span>
        {weights.longest ? ", at the longest context, too" : ""}.
      </Text>
      <Scrolls minWidth={560} what="Checks of the proof">
        <Table>
          <caption className="off-screen">Checks of the proof</caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Check</Table.Th>
              <Table.Th scope="col">Result</Table.Th>
              <Table.Th scope="col" ta="end">
                Measured
              </Table.Th>
              <Table.Th scope="col" ta="end">
                Bound
              </Table.Th>
              <Table.Th scope="col">Meaning</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {weights.checks.map((check) => (
              <Table.Tr key={check.name}>
                <Table.Td>{check.name}</Table.Td>
                <Table.Td>
                  <Badge color={check.passed ? "teal" : "red"}>{check.passed ? "passed" : "failed"}</Badge>
                </Table.Td>
                <Table.Td ta="end" className="figures">
                  {check.figure == null ? "–" : numberText(check.figure)}
                </Table.Td>
                <Table.Td ta="end" className="figures">
                  {check.bound == null ? "–" : numberText(check.bound)}
                </Table.Td>
                <Table.Td className="breaks">{check.message}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Scrolls>
      {weights.acceptance !== null && (
        <Answers result={weights.acceptance} prompts={acceptance?.prompts ?? []} />
      )}
    </Card>
  );
}

type Result = NonNullable<Weights["acceptance"]>;

function Answers({
  result,
  prompts,
}: {
  result: Result;
  prompts: NonNullable<Proof["acceptance"]>["prompts"];
}) {
  return (
    <>
      <Title order={4} size="h5" mt="md">
        Acceptance prompts: {percentText(result.share)} of {result.num_prompts} answered as asked, at least{" "}
        {percentText(result.minimum_share)} have to be
      </Title>
      <Scrolls minWidth={560} what="Answers to acceptance prompts">
        <Table>
          <caption className="off-screen">Answers to acceptance prompts</caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Asked</Table.Th>
              <Table.Th scope="col">Expected</Table.Th>
              <Table.Th scope="col">Answered</Table.Th>
              <Table.Th scope="col">Result</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {result.answers.map((answer, index) => (
              <Table.Tr key={index}>
                <Table.Td className="breaks">{inputText(prompts[index]?.input)}</Table.Td>
                <Table.Td className="breaks">
                  <Mono>{answer.expected}</Mono>
                </Table.Td>
                <Table.Td className="breaks">
                  <Text size="sm" lineClamp={6}>
                    {answer.text}
                  </Text>
                </Table.Td>
                <Table.Td>
                  <Badge color={answer.passed ? "teal" : "red"}>
                    {answer.passed ? "as asked" : "not so"}
                  </Badge>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Scrolls>
      {result.answers.length < result.num_prompts && (
        <Text size="sm" c="dimmed">
          {result.num_prompts - result.answers.length} more were not asked: too many had failed by then.
        </Text>
      )}
    </>
  );
}

function inputText(input: unknown): string {
  return typeof input === "string" ? input : JSON.stringify(input ?? "");
}

function FactsCards({ facts, base }: { facts: Facts; base: string }) {
  const matched = Object.entries(facts.matched);
  const { bytes_by_tier: bytes, values } = facts;
  return (
    <>
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <Card withBorder>
          <Title order={3} size="h4" mb="sm">
            Files
          </Title>
          <Table variant="vertical" layout="auto">
            <Table.Tbody>
              {facts.files.map((file) => (
                <Row key={file.name} name={file.name}>
                  <Bytes value={file.bytes} />
                </Row>
              ))}
              <Row name="Base">
                <Mono>{base}</Mono>
              </Row>
              <Row name="Parameters">
                <Count value={facts.num_parameters} />
              </Row>
              <Row name="Ranks">{facts.ranks.join(", ")}</Row>
            </Table.Tbody>
          </Table>
        </Card>
        <Card withBorder>
          <Title order={3} size="h4" mb="sm">
            Size and values
          </Title>
          <Table variant="vertical" layout="auto">
            <Table.Tbody>
              <Row name="In the store">
                <Bytes value={bytes.store} />
              </Row>
              <Row name="On disk">
                <Bytes value={bytes.disk} />
              </Row>
              <Row name="In memory">
                <Bytes value={bytes.host} />
              </Row>
              <Row name="On a device">
                <Bytes value={bytes.device} />
              </Row>
              <Row name="NaN or infinity">
                <Count value={values.nonfinite} /> of <Count value={values.num_values} unit="values" />
              </Row>
              <Row name="Largest value">
                <span className="figures">{numberText(values.largest)}</span>
              </Row>
              <Row name="Change of the base, at most">
                <span className="figures">{numberText(values.delta_bound)}</span> (norm, sum of modules)
              </Row>
            </Table.Tbody>
          </Table>
        </Card>
      </SimpleGrid>
      <Card withBorder>
        <Title order={3} size="h4" mb="sm">
          Targets
        </Title>
        <Table variant="vertical" layout="auto">
          <Table.Tbody>
            <Row name="Matched">
              {matched.map(([site, layers]) => `${site} in ${layers} layers`).join(", ") || "none"}
            </Row>
            <Row name="Without a module">{facts.unmatched.join(", ") || "none"}</Row>
            <Row name="Left as in the base">{facts.untouched.join(", ") || "none"}</Row>
          </Table.Tbody>
        </Table>
        <ModuleTable modules={facts.modules} />
      </Card>
    </>
  );
}
