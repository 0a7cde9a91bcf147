"""Chinese word segmentation by jieba (`rjieba`, written in Rust), and its names of people, places and organizations.

Its words are simplified. Traditional text is segmented in simplified form (OpenCC), character by character.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from maskwright.core.extras import install
from maskwright.core.spec import fingerprint
from maskwright.data.libraries import imported
from maskwright.data.scripts import code_points, has_han, traditional_texts
from maskwright.data.words.lexicon import content_of, read_dictionary
from maskwright.data.words.spec import Words

NAME_RULES_VERSION = 2
"""Raise it with every change of `is_name`."""

_FEW_TRADITIONAL = 0.01
_NAME_TAGS = ("nr", "ns", "nt", "nz")  # ICTCLAS's: people (also nrt, nrfg), places, organizations, others
_NOT_NAME_ENDINGS = "性化者符证器键式"
# The most frequent of them in Chinese articles on Linux and in CLUECorpusSmall.
_LISTED = (
    "东西 日志 加密 补丁 普通 索引 联网 博客 许可 令人 城市 克隆 中断 哈希 黑客 诸如 明白 关联 高亮 长度 新建 "
    "聊天 解密 深度 子目录 入门 比特 新鲜 库中 通讯 谢谢 宝宝 入口 太多 古老 养老 黑名单 以太网 修正 博文 海鲜 "
    "双启动 顾客 嵌套 拷贝到 论文 内建 网络安全 蓝牙 内联 家族 美丽 新创建 小姐 旧版本 白名单 权威 卓越 重新安装 "
    "老公 解压缩 宝贵 普及 中继 上市 太大 英雄 文件共享 安全更新 段时间 高清 功能丰富 顾问 明文 美味 多达 华丽 "
    "正宗 美观 安全补丁 明智 库来 令牌 智慧 延时 曝光 福利 文明 子宫 云中 幼儿园 保健 权衡 宕机 触摸板 相匹配 "
    "宣言 公开赛 若想 巧克力 明星 吉祥物 海滩 张量 卡片 长大 陈旧 白银 顾名思义 大厨 容纳 康复 短语 聊天室 范畴 "
    "蓝图 和平 屏保 文件创建 立马 易懂 钟爱 触摸屏 时髦 无人驾驶 多汗 沙拉 三文鱼 冰淇淋 安静 开发新 罗列 白皮书 "
    "波浪 阳光 工程硕士 东北 宫殿 都城 女主播 古建筑 海洋 太棒了 刚刚开始 信息安全 真实世界 摩托车 通知书 白宫 "
    "阿姨 枚举 汇报 西北 人民法庭 师傅 人大代表 东南 恒星 红茶 单元格 子网掩码 上文 连接池 城镇 崇拜 荣誉 维度 "
    "高峰 大城市 嘉宾 灵敏 麦克风 王朝 青春 高速缓存 高阶 大都 益处 彩虹 东东 太久 陈述 鲤鱼 果仁 阴阳 汤汁 冰川 "
    "银耳 新秀 乌托邦 程序开发 青少年 新奇 宝石 滤镜 正文 奇特 系统安全 库里 建议您 外国 小学生 卡住 张图 高昂 "
    "大街 栗子 网络通信 列中 静默 安全措施 张口 酸梅汤 共和 深水 常见病 木耳 侯爵 羊杂 真是太 齐全 世界观 太阳 "
    "神圣 高水平 关怀 多云 新鲜度 古典 模式匹配 非营利 包后 小姑娘 银行卡 段子 续航 喝咖啡 牛仔 信息中心 满意度 "
    "三明治 高中生 矫正 布尔值 多播 公正 即时通讯 纳秒 封锁 统计学 无卡 陆军 都市 燕麦 野战 安然 南瓜 大满贯 抗战 "
    "龙虾 水煮鱼 蓝光 万能 高科技 赞美 敬畏 第一版 小镇 查询语言 勒索 祝贺 益智 卫星 朴素 温泉 平原 亚军 科普 "
    "王子 二十世纪 曙光 大战 美的 雷达 老太太 亚健康 大王 港湾 高三 双子座 人民法院 三世 加盟 解释权 玉米 特邀 "
    "季前赛 绕城 民政局 开奖 凤爪 公立医院 海拔高度 双鱼座 鲜甜 确保安全 晋升 夏令营 沙滩 祝福 卡通 王国 抗议 "
    "测试方法 宝贵意见 大大的 新旧 仁慈 长达 三观 白平衡 西红柿 新一轮 法宝 智能卡 孤儿 测试运行 麦芽 开放平台 "
    "漏报 彩信 上门 安康 六楼 汤底 住院医师 英语专业 卸妆油 摩羯座 田园 新开工 滤芯 芝士 五星 文科 京城 关东煮 "
    "杜鹃 外贸公司 麻木 西南 本报讯 申请书 采暖期 南瓜饼 胡萝卜 母爱 新加 关键因素 黑洞 以太网卡 甘特图 全自动 "
    "通信协议 恐龙 国家有关 建立健全"
)
_NOT_NAMES = frozenset(_LISTED.split())


@dataclass(frozen=True, slots=True)
class Segmenter:
    """Cuts runs of Chinese characters into words, each run separately; the words join to the runs joined.

    Attributes:
        cut: Runs to words.
        tag: Runs to (word, part of speech); the words may differ from those of `cut`.
        simplify: A run of traditional characters to as many simplified ones, which `cut` and `tag` know; None if OpenCC
            is not installed.
    """

    cut: Callable[[Sequence[str]], list[str]]
    tag: Callable[[Sequence[str]], list[tuple[str, str]]]
    simplify: Callable[[str], str] | None = None


def is_name(word: str, tag: str) -> bool:
    """Return whether a tagged word is the name of a person, place, organization or product.

    The dictionary tags common words as names (东西, 日志, 索引), and so does its model for unknown words (贡献者); on
    technical text 7 of 10 tagged words are no names. Frequent ones and derived nouns are excluded here.
    """
    return tag.startswith(_NAME_TAGS) and word[-1] not in _NOT_NAME_ENDINGS and word not in _NOT_NAMES


def open_segmenter(words: Words) -> Segmenter | None:
    """Load the segmenter, if there is one; DataError if the library or the dictionary is missing or broken."""
    if words.segmenter == "none":
        return None
    library = imported("rjieba", "the segmenter 'rjieba'", "zh", otherwise="choose another words.segmenter")
    simplify = _open_simplifier()
    if words.dictionary is not None:
        library = library.Jieba()
        for word, frequency, tag in read_dictionary(Path(words.dictionary)):
            for form in {word, simplify(word) if simplify else word}:
                library.add_word(form, frequency or library.suggest_freq(form), tag or "n")
    # All runs in one call: a line break is a word, and no word crosses it.
    return Segmenter(
        cut=lambda runs: [word for word in library.cut("\n".join(runs)) if word != "\n"],
        tag=lambda runs: [pair for pair in library.tag("\n".join(runs)) if pair[0] != "\n"],
        simplify=simplify,
    )


def _open_simplifier() -> Callable[[str], str] | None:
    if find_spec("opencc") is None:
        return None
    convert = imported("opencc", "traditional Chinese", "zh").OpenCC("t2s").convert

    def simplify(run: str) -> str:
        simplified: str = convert(run)
        return simplified if len(simplified) == len(run) else run

    return simplify


def describe_traditional(words: Words, texts: Iterable[str]) -> str:
    """Describe how the traditional Chinese among some sentences is segmented; "" if there is none or no segmenter."""
    sentences = [text for text in texts if has_han(text)] if words.segmenter != "none" else []
    codes, lengths = code_points("".join(sentences)), np.array(list(map(len, sentences)), dtype=np.int64)
    share = traditional_texts(codes, lengths).mean() if sentences else 0.0
    if share < _FEW_TRADITIONAL:
        return ""
    found = f"{share:.0%} of the Chinese sentences are traditional"
    if find_spec("opencc") is not None:
        return f"{found}; OpenCC converts them for segmentation only"
    return f"{found}, of which the segmenter knows few words and invents others: install OpenCC, {install('zh')}"


def segmenter_fingerprint(words: Words) -> str:
    """Identify the segmentation of Chinese text: the library's version and the content of the dictionary."""
    if words.segmenter == "none":
        return "none"
    try:
        version = metadata.version(words.segmenter)
    except metadata.PackageNotFoundError:
        version = ""
    dictionary = "" if words.dictionary is None else content_of(Path(words.dictionary))
    converter = [] if find_spec("opencc") is None else [metadata.version("opencc")]
    return fingerprint([words.segmenter, version, None, dictionary, *converter])
